"""The table of every setting, one module per theme; rows only, no behaviour."""
