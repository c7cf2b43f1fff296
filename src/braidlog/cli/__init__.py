"""The command line: one module per noun, each a thin shell over the client or the broker."""
