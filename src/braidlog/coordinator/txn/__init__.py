"""The shard of `__transaction_state`: transactional ids and their transactions, without I/O."""
