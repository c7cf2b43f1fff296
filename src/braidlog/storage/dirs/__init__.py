"""Dirs."""
