"""What is fetched ahead and turned into records; it knows positions, never groups or commits."""
