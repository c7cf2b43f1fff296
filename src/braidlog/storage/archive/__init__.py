"""A topic's files as an archive with checksums, out of one stopped broker and into another; no store is touched."""
