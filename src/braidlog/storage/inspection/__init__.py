"""Offline tools for a data directory: dump, verify, rebuild indexes; prints nothing, and no broker imports it."""
