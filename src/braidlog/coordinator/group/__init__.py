"""The shard of `__consumer_offsets`: members of groups, and the offsets they committed."""
