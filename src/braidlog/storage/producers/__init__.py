"""What a log remembers of its producers and their transactions; no segment is opened here."""
