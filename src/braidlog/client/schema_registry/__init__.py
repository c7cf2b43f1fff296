"""Records whose bytes name a schema of a schema registry: asking it, and reading them. No Spark, no Arrow."""
