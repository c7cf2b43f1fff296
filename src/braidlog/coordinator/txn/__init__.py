"""The shard of `__transaction_state`: who may write under a transactional id, and how its transactions end."""
