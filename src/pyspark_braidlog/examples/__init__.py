"""Seven uses of a log with Spark, each a program to run and to copy: `python -m pyspark_braidlog.examples.NAME`."""
