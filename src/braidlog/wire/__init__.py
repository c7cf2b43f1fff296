"""The Kafka protocol without I/O: reader and writer, generated messages, headers and records."""
