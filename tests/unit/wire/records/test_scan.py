"""The kernel: numbers at their edges, and compiled and uncompiled code agreeing on everything."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.protocol_errors import InvalidRecordError
from braidlog.wire.records import scan
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from braidlog.wire.records.scan import RecordScan, scan_records
from braidlog.wire.records.varint import INT64_MAX, INT64_MIN
from support.record_cases import NAMED_ERRORS, NOW, encoded_varint, mutations, record_lists, thorough


def test_timestamps_at_the_edges() -> None:
    def record(delta: int) -> bytes:
        body = b"\x00" + encoded_varint(delta) + b"\x00\x01\x01\x00"
        return encoded_varint(len(body)) + body

    ends = ((INT64_MAX, INT64_MAX), (INT64_MIN, INT64_MIN), (0, INT64_MAX), (INT64_MAX, 0), (-1, INT64_MIN))
    for base, stamp in ends:
        data = record(stamp - base)
        found = RecordScan(INT64_MIN, INT64_MAX, False)
        scan_records(data, 0, len(data), 1, base, found)
        assert found.max_timestamp == max(stamp, -1)
    for base, delta in ((INT64_MAX, 1), (INT64_MIN, -1), (1, INT64_MAX), (-1, INT64_MIN)):
        data = record(delta)
        with pytest.raises(InvalidRecordError, match="impossible timestamp"):
            scan_records(data, 0, len(data), 1, base, RecordScan(INT64_MIN, INT64_MAX, False))


@pytest.mark.parametrize("length", [-2, -64, -65, -8192, -8193, -(2**31)])
@pytest.mark.parametrize("field", ["key", "value", "header value"])
def test_only_minus_one_means_null(field: str, length: int) -> None:
    header = b"\x02\x02h" + encoded_varint(length if field == "header value" else -1)
    key, value = (encoded_varint(length if field == name else -1) for name in ("key", "value"))
    body = b"\x00\x00\x00" + key + value + header
    data = encoded_varint(len(body)) + body
    with pytest.raises(InvalidRecordError, match=str(length)):
        scan_records(data, 0, len(data), 1, 0, RecordScan(INT64_MIN, INT64_MAX, False))


def test_offsets_with_gaps_only_where_allowed() -> None:
    records = [Record(offset=3), Record(offset=9)]
    body = build_batch(records, base_offset=1, keep_offsets=True)[61:]
    scan_records(body, 0, len(body), 2, -1, RecordScan(INT64_MIN, INT64_MAX, False, False))
    with pytest.raises(InvalidRecordError, match="offset delta 2"):
        scan_records(body, 0, len(body), 2, -1, RecordScan(INT64_MIN, INT64_MAX, False))


def uncompiled() -> ModuleType:
    """The same source, run by the interpreter."""
    source = Path(str(scan.__file__)).parent / "scan.py"
    spec = importlib.util.spec_from_file_location("uncompiled_scan", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


UNCOMPILED = uncompiled()


def verdict(kernel: ModuleType, body: bytes, count: int, base: int, keys: bool) -> object:
    found = kernel.RecordScan(NOW - 1000, NOW + 1000, keys)
    try:
        kernel.scan_records(body, 0, len(body), count, base, found)
    except NAMED_ERRORS as problem:
        return str(problem)
    return found.max_timestamp, found.index_of_max, found.faults


@pytest.mark.skipif(not str(scan.__file__).endswith(".so"), reason="the kernel is not compiled here")
@thorough
@given(
    data=st.data(),
    count=st.none() | st.integers(-1, 4),
    base=st.sampled_from([-1, 0, NOW, INT64_MAX, INT64_MIN]),
    keys=st.booleans(),
)
def test_compiled_and_uncompiled_agree(data: st.DataObject, count: int | None, base: int, keys: bool) -> None:
    records = data.draw(record_lists(max_size=4))
    body = build_batch(records)[61:]
    if data.draw(st.booleans()):
        body = data.draw(mutations(body))
    count = len(records) if count is None else count
    assert verdict(scan, body, count, base, keys) == verdict(UNCOMPILED, body, count, base, keys)
