"""Which records of a fetched range a consumer may see, by the plain reader: what the quick ones are compared with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from braidlog.client.consumer.fetch.completed_fetch import AbortedRange
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.control_records import ABORT, control_type
from braidlog.wire.records.reading import Record, read_batch


class Visible(NamedTuple):
    records: list[Record]
    # Where to read on; past the records, since markers and compacted records have offsets too.
    next_offset: int


def visible_records(data: bytes, position: int, aborted: Iterable[AbortedRange] = ()) -> Visible:
    """The records at or after `position` in the whole batches of `data`, without markers and aborted ones.

    `data` may start with a batch that begins before `position`, and end in the middle of one.
    """
    coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    open_aborts: set[int] = set()
    records: list[Record] = []
    for header in iterate_headers(data, 0, len(data)):
        while coming and coming[-1].first_offset <= header.last_offset:
            open_aborts.add(coming.pop().producer_id)
        if header.is_control:
            for marker in read_batch(data, header):
                if control_type(marker) == ABORT:
                    open_aborts.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborts):
            records += (record for record in read_batch(data, header) if record.offset >= position)
        position = max(position, header.next_offset)
    return Visible(records, position)
