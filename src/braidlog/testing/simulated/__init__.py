"""A deterministic simulation: loop, clock, disk and connections from one seed; no real time, threads or sockets."""
