"""Files that Spark and new projects are given; no code of ours runs here."""
