from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from braidlog.core.protocol_errors import InvalidRecordError
from braidlog.wire.records import varint
from braidlog.wire.records.varint import (
    INT64_MAX,
    INT64_MIN,
    nullable_size,
    read_varint,
    read_varlong,
    skip_bytes,
    varint_size,
    write_short_varint,
    write_varint,
)
from support.record_cases import encoded_varint, thorough

EDGES = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**62, INT64_MAX, INT64_MIN]


@thorough
@given(value=st.sampled_from(EDGES) | st.integers(INT64_MIN, INT64_MAX), before=st.binary(max_size=3))
def test_varints(value: int, before: bytes) -> None:
    out = BytesWriter()
    out.write(before)
    write_varint(out, value)
    data = out.getvalue()
    assert data == before + encoded_varint(value)
    assert varint_size(value) == len(data) - len(before)
    assert read_varlong(data, len(before), len(data)) == (value, len(data))
    if -(2**31) <= value < 2**31:
        assert read_varint(data, len(before), len(data)) == (value, len(data))
    for end in range(len(before), len(data)):
        with pytest.raises(InvalidRecordError):
            read_varlong(data, len(before), end)


def test_bits_beyond_the_width_are_dropped_as_java_drops_them() -> None:
    assert read_varint(b"\xff\xff\xff\xff\x7f", 0, 5) == (-(2**31), 5)
    assert read_varlong(b"\xff" * 9 + b"\x7f", 0, 10) == (INT64_MIN, 10)
    for read, size in ((read_varint, 5), (read_varlong, 10)):
        with pytest.raises(InvalidRecordError, match=f"more than {size} bytes"):
            read(b"\x80" * size + b"\x00", 0, size + 1)


@thorough
@given(value=st.sampled_from(EDGES) | st.integers(INT64_MIN, INT64_MAX))
def test_short_varints_are_the_same_bytes(value: int) -> None:
    out = BytesWriter()
    write_short_varint(out, value)
    assert out.getvalue() == encoded_varint(value)


@pytest.mark.parametrize("length", [-1, 0, 1, 63, 64, 8191, 8192])
def test_nullable_byte_strings(length: int) -> None:
    data = encoded_varint(length) + bytes(max(length, 0))
    assert nullable_size(length) == len(data)
    assert skip_bytes(data, 0, len(data)) == len(data)
    if length > 0:
        with pytest.raises(InvalidRecordError, match="does not fit"):
            skip_bytes(data, 0, len(data) - 1)


def test_a_length_below_minus_one_is_impossible() -> None:
    with pytest.raises(InvalidRecordError, match="impossible"):
        skip_bytes(encoded_varint(-2), 0, 1)


def uncompiled() -> ModuleType:
    """The same source, run by the interpreter."""
    source = Path(str(varint.__file__)).parent / "varint.py"
    spec = importlib.util.spec_from_file_location("uncompiled_varint", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


UNCOMPILED = uncompiled()


def verdict(read: Callable[[bytes, int, int], object], data: bytes) -> object:
    try:
        return read(data, 0, len(data))
    except InvalidRecordError as problem:
        return str(problem)


@pytest.mark.skipif(not str(varint.__file__).endswith(".so"), reason="the module is not compiled here")
@thorough
@given(data=st.binary(max_size=12) | st.integers(INT64_MIN, INT64_MAX).map(encoded_varint))
def test_compiled_and_uncompiled_agree(data: bytes) -> None:
    for name in ("read_varint", "read_varlong", "skip_bytes"):
        assert verdict(getattr(varint, name), data) == verdict(getattr(UNCOMPILED, name), data)
