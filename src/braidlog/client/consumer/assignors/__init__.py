"""Ways to assign partitions to the members of a group; pure."""
