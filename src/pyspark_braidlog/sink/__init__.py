"""Writing DataFrames to topics, at least once or exactly once."""
