"""The table of every client setting, one module per client; rows only, no behaviour."""
