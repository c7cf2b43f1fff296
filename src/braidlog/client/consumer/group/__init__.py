"""How a consumer takes part in its group, over either protocol; nothing here reads records."""
