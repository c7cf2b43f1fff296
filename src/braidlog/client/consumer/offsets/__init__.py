"""Where a consumer reads and what it commits; nothing here holds records."""
