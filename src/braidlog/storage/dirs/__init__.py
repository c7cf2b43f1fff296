"""The data directories of a broker and the logs in them: found, created, moved, deleted; no record is read here."""
