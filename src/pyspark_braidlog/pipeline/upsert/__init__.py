"""Sinks for foreachBatch that insert, replace and delete rows of a table exactly once, by kind of table."""
