"""What a registry's schemas make of a key or a value, and what is done about one that they do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.cli.records.byte_formats import as_it_is
from braidlog.cli.records.schema_decoding import RecordDecoding, UndecodableField


class Nested:
    """Decodes everything to lists within lists."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def decode(self, data: bytes) -> Any:
        made: Any = []
        for _ in range(self._depth):
            made = [made]
        return made


def test_what_is_nested_too_deeply_is_undecodable() -> None:
    assert RecordDecoding(Nested(1), ("value",), "error").before("value", as_it_is)(b"x") == b"[[]]"
    with pytest.raises(UndecodableField, match="the value is nested too deeply"):
        RecordDecoding(Nested(100_000), ("value",), "skip").before("value", as_it_is)(b"x")
    assert RecordDecoding(Nested(100_000), ("value",), "raw").before("value", as_it_is)(b"x") == b"x"
