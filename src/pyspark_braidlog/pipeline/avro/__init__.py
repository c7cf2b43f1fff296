"""Avro records in Spark: schemas as Spark types, columns decoded and encoded in the workers."""
