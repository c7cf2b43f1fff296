"""The index files of a segment; no batch is read here."""
