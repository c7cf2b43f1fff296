"""One partition's log: its segments, how batches are appended, read, flushed and recovered; no other partition."""
