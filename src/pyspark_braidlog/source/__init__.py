"""Reading topics as DataFrames: options, offsets, plans on the driver; Arrow batches in the tasks."""
