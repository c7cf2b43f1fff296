"""Fuzzing: bytes that no honest peer sends, given to one parser at a time; `python -m tools.fuzz --help`."""
