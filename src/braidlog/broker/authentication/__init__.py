"""Who is behind a connection to this broker: its listeners' logins and users; what they may do is decided elsewhere."""
