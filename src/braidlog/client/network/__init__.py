"""The thread and event loop behind a client, and its connections to brokers by id; requests are built elsewhere."""
