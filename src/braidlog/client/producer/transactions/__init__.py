"""Transactions of a producer: states, requests to coordinators, the calls of programs; no record batches."""
