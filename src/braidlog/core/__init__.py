"""Types, errors, time and identifiers that every other package uses; standard library only, no I/O."""
