"""Groups whose partitions the broker assigns (KIP-848): each member is led to its target, heartbeat by heartbeat."""
