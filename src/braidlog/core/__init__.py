"""The words every other room speaks: types, errors, time, identifiers; standard library only, no I/O."""
