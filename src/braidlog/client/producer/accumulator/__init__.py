"""Batches of records by partition, the memory they share and their sequences; without sockets or event loops."""
