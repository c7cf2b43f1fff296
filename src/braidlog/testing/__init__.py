"""A world for brokers to run in under test: virtual time, a disk that can lose power, a wire in memory."""
