"""braidlog's client next to other Python clients, on one broker, one process a measurement."""
