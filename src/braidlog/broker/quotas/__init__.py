"""Quotas of clients on this broker: what was set, what each client has used of it, and who is held because of that."""
