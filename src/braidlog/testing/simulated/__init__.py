"""A deterministic simulation of brokers and programs: loop, clock, threads, disks and network from one seed."""
