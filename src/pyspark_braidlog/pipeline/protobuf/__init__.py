"""Protobuf records in Spark: messages as Spark types, columns decoded in the workers."""
