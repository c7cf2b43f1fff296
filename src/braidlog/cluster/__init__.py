"""What the brokers of a cluster agree on: the coordination store, its records, the image; nothing here decides."""
