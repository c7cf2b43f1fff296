"""How the members of a classic group share partitions: pure rules that the group's leader runs, never any I/O."""
