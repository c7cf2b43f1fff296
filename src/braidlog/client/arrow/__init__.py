"""Tables in and tables out: Arrow columns to and from whole record batches, never an object per record."""

from importlib.util import find_spec

if find_spec("pyarrow") is None:
    raise ImportError("tables of records need pyarrow: pip install 'braidlog[arrow]'")
