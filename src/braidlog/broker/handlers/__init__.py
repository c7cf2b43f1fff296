"""One handler class per API: what its request asks of the broker, and the response, for every version."""
