"""Columns back to records and records to columns, slowly and by the book, for the tests of the columnar kernel."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from braidlog.wire.records.columns import RecordColumns, SpanColumn
from braidlog.wire.records.columns_building import BytesColumn, HeaderColumns, RecordSource
from braidlog.wire.records.reading import Record


def strings_of(column: SpanColumn, buffers: list[bytes]) -> list[bytes | None]:
    """What the views of a column stand for, by Arrow's description of the layout."""
    views, validity = column.views, column.validity
    assert len(views) == 16 * column.count
    assert len(validity) == (column.count + 7) // 8
    strings: list[bytes | None] = []
    for row in range(column.count):
        length, prefix, index, at = struct.unpack_from("<i4sii", views, 16 * row)
        if not validity[row >> 3] >> (row & 7) & 1:
            strings.append(None)
        elif length <= 12:
            string = views[16 * row + 4 : 16 * row + 4 + length]
            assert views[16 * row + 4 + length : 16 * row + 16] == bytes(12 - length)
            strings.append(string)
        else:
            string = buffers[index][at : at + length]
            assert len(string) == length
            assert string[:4] == prefix
            strings.append(string)
    assert strings.count(None) == column.nulls
    return strings


def records_of(columns: RecordColumns) -> list[Record]:
    """The records that the columns (all of them wanted) hold; attributes and sequences are in no column."""
    count = int(columns.count)
    offsets = struct.unpack(f"<{count}q", columns.offsets.getvalue())
    timestamps = struct.unpack(f"<{count}q", columns.timestamps.getvalue())
    keys = strings_of(columns.keys, columns.buffers)
    values = strings_of(columns.values, columns.buffers)
    starts = [*struct.unpack(f"<{count}i", columns.header_starts.getvalue()), int(columns.header_keys.count)]
    names = strings_of(columns.header_keys, columns.buffers)
    contents = strings_of(columns.header_values, columns.buffers)
    headers = [
        ((name or b"").decode("utf-8", "replace"), content) for name, content in zip(names, contents, strict=True)
    ]
    return [
        Record(offsets[row], timestamps[row], keys[row], values[row], tuple(headers[starts[row] : starts[row + 1]]))
        for row in range(count)
    ]


def plain(records: Sequence[Record]) -> list[Record]:
    """The records without what columns do not hold."""
    return [Record(each.offset, each.timestamp, each.key, each.value, each.headers) for each in records]


def bytes_column(strings: Sequence[bytes | None], *, shift: int = 0, bit: int = 0) -> BytesColumn:
    """A column whose data starts `shift` bytes and whose bitmap `bit` bits into what it was cut from."""
    starts = [shift]
    for string in strings:
        starts.append(starts[-1] + len(string or b""))
    bits = 0
    for row, string in enumerate(strings):
        bits |= (string is not None) << (bit + row)
    return BytesColumn(
        b"".join(string or b"" for string in strings),
        struct.pack(f"<{len(starts)}i", *starts),
        base=shift,
        validity=bits.to_bytes((bit + len(strings) + 7) // 8, "little") if None in strings else None,
        bit=bit,
    )


def source_of(records: Sequence[Record], *, shift: int = 0, bit: int = 0) -> RecordSource:
    starts = [shift]
    for record in records:
        starts.append(starts[-1] + len(record.headers))
    names = [name.encode() for record in records for name, _ in record.headers]
    contents = [content for record in records for _, content in record.headers]
    return RecordSource(
        len(records),
        keys=bytes_column([record.key for record in records], shift=shift, bit=bit),
        values=bytes_column([record.value for record in records], shift=shift, bit=bit),
        headers=HeaderColumns(
            struct.pack(f"<{len(starts)}i", *starts),
            bytes_column(names, shift=shift),
            bytes_column(contents, shift=shift, bit=bit),
            base=shift,
        ),
        timestamps=struct.pack(f"<{len(records)}q", *[record.timestamp for record in records]),
    )
