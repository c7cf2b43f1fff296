"""Messages written by `python -m tools.protocol` from tools/protocol/schemas; nothing here is edited by hand."""
