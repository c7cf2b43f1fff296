"""The sans-IO protocol: bytes to messages and back, with no socket, file or clock in sight."""
