"""For people with a broken disk: list what is in a file, check a directory, build indexes again; prints nothing."""
