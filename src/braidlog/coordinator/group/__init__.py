"""The shard of `__consumer_offsets`: groups and committed offsets, without I/O."""
