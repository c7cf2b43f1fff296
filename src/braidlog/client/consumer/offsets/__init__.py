"""Offsets."""
