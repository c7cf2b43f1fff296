"""A record as `consume` prints it: by way of a batch and its columns."""

from __future__ import annotations

from braidlog.cli.records.record_text import RecordText, Rows
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.columns_slice import SliceReader
from braidlog.wire.records.reading import Record


def printed(text: RecordText, *records: Record) -> bytes:
    batch = build_batch(list(records), base_offset=records[0].offset)
    columns = text.columns()
    SliceReader(batch, 0, len(batch), 0).read_into(columns)
    rows = Rows(columns)
    assert rows.count == len(records)
    whole = text.render(rows, 0, len(records))
    assert whole == b"".join(text.render(rows, row, row + 1) for row in range(len(records)))
    return whole
