"""The longer subcommands of `braidlog groups`."""
