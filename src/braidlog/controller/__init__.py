"""Decides changes to the cluster (topics, configs, leaders) as pure plans, which one loop commits to the store."""
