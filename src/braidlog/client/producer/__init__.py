"""The producer: records from `send` to the brokers' acknowledgement."""
