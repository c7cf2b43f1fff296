"""Pure shards of groups and transactions, one per partition of an internal topic, and the runtime that keeps them."""
