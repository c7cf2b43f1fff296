"""How a consumer takes part in its group: pure machines of both protocols, and thin shells that speak for them."""
