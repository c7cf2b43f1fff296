"""Decides changes to topics, brokers and leaders as pure plans; a few shells commit them and tell brokers."""
