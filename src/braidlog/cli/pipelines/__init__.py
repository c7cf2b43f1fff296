"""The subcommands of `braidlog pipeline`; the only modules of the command line that import `pyspark_braidlog`."""
