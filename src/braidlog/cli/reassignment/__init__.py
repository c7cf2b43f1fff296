"""Moves of replicas between brokers: planned, throttled, carried out and watched; no arguments are parsed here."""
