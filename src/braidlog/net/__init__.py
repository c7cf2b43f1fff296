"""Sockets in, frames up, ordered replies out: knows connections and bytes, and nothing of what they mean."""
