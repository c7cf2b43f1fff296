"""One module per command of `braidlog`, named as it is typed; shared code does not live here."""
