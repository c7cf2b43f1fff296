"""Groups whose members choose a leader that assigns: join, sync, heartbeat, leave, generation by generation."""
