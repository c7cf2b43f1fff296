"""The minimal request client that the command line speaks to any Kafka-compatible broker with."""
