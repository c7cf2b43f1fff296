"""Looking at a running cluster: the metrics pages of its brokers, samples of what it does, and how these are shown."""
