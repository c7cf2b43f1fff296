"""How `produce` and `consume` read, decode, format and print records; no argument parsing."""
