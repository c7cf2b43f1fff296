"""How clients talk to brokers: one thread with one loop per client, connections that pipeline, nodes by id."""
