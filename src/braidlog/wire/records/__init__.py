"""Kafka's record formats: batches v2 and message sets v0/v1, checked, built, read, converted and filtered."""
