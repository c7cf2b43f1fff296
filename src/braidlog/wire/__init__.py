"""The Kafka protocol without I/O: bytes to messages and back; no socket, file or clock."""
