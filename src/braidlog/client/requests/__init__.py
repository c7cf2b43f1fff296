"""Requests that several clients send: each is built here, and its response read; pure, no I/O."""
