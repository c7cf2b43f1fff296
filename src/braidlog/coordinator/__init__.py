"""The runtime that appends what coordinator shards decide, replays it into them and replies; shards do no I/O."""
