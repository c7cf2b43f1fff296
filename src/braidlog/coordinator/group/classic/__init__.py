"""Groups whose members assign partitions among themselves (JoinGroup, SyncGroup)."""
