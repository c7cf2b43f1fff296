"""One module per question that the benchmark asks; each adds rows to the measures."""
