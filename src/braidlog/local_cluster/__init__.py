"""A cluster's programs as processes on this machine, ZooKeeper and brokers; nothing of what they do inside."""
