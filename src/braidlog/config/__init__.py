"""Every topic and broker setting by name, and how its value is found, checked and explained; no effects."""
