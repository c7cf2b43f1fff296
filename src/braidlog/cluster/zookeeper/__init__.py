"""The coordination store on a ZooKeeper ensemble: sessions and what carries them; only this package imports kazoo."""
