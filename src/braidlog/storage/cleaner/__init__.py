"""Log compaction: which log is next, what of it survives, the process that does it; no retention by time or size."""
