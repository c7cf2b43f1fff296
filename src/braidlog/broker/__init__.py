"""One broker put together: composition root, dispatch, handlers; the only room that knows all the others."""
