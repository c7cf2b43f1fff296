"""The APIs of consumer groups and their offsets; each submits one operation to the group coordinator."""
