"""One broker put together: composition root, dispatch, handlers; the only package that imports all the others."""
