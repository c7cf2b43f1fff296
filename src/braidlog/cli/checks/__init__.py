"""The doctor's checks: each looks at one thing and tells what it found and what to do; none changes anything."""
