"""The APIs that describe and change topics and their partitions; decisions are the controller's."""
