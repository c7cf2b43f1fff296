"""Produce, Fetch and the other APIs that touch partition data; no group or transaction state is kept here."""
