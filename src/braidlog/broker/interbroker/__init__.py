"""What this broker asks of the others, over connections of its own; what others ask of it is in `handlers`."""
