"""Many workers over one Consumer, which is used as a program uses it."""
