"""Who may do what: the rules in the store, and the decisions that handlers ask for."""
