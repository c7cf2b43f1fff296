"""The protocol's messages in a notation of our own, and the generator that turns them into Python."""
