"""The coordination tree as a file: written, checked and put back; nothing here runs inside a broker."""
