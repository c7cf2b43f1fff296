"""The partitions that this broker holds: leadership, high watermark, group commit; no connections, no event loop."""
