"""What the brokers of a cluster agree on: the coordination store, its records, and the image read from them."""
