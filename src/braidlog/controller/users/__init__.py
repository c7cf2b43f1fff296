"""Decides about users and clients: credentials, delegation tokens, quotas. Nothing here waits or looks at a clock."""
