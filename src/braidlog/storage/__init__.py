"""Partition logs on disk in Kafka's own layout: synchronous files; no sockets, no event loop."""
