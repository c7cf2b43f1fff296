"""Decides changes to topics, configs and leaders as pure plans; only `controller` and `fenced_store` do I/O."""
