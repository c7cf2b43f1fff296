"""From a frame to a handler and back: dispatch, routes, errors, long work; nothing here knows what an API does."""
