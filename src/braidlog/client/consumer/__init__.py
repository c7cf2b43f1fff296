"""The Consumer: what is read, from where, and in whose name."""
