"""Compaction: which log to compact next, what of it survives, and the worker process that does the reading."""
