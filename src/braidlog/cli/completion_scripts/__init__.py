"""One completion script writer per shell; what there is to complete comes from `cli.command_tree`."""
