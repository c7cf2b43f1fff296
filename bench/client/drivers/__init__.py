"""One module per client library: the loop a program would write with it, and nothing else."""
