"""What we write, read by kafka-clients itself."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tools.golden.records import read_by_kafka

from braidlog.wire.records.batch import read_header
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.filtering import retain
from braidlog.wire.records.reading import Record, read_records
from support.record_cases import NOW, describe

LEVELS: dict[int, list[int | None]] = {0: [None], 1: [None, 1, 9], 2: [None], 3: [None, 1, 12], 4: [None, -5, 19]}


def samples(with_headers: bool) -> list[Record]:
    """Null, empty, short, long and incompressible values, longer than every codec's block."""
    chance = random.Random(7)
    values = [None, b"", b"x" * 50, b"%d, " * 40_000, chance.randbytes(70_000)]
    headers = (("name", b"1"), ("null", None)) if with_headers else ()
    return [
        Record(timestamp=NOW + 977 * index, key=b"key" if index % 2 else None, value=value, headers=headers)
        for index, value in enumerate(values)
    ]


@pytest.mark.peer
def test_kafka_clients_reads_what_we_write(apache_kafka: Path) -> None:
    written: list[bytes] = [build_end_txn_marker(commit=True, producer_id=1, producer_epoch=0, timestamp=NOW)]
    for codec, levels in LEVELS.items():
        for level in levels:
            batch = build_batch(samples(True), codec=codec, level=level, base_offset=5)
            kept = retain(
                batch, read_header(batch, 0, len(batch)), [True, False, True, False, True], delete_horizon_ms=NOW
            )
            assert kept is not None
            written += [batch, kept]
            if codec != 4:
                for magic in (0, 1):
                    written.append(build_message_set(samples(False), magic=magic, codec=codec, level=level))
    assert read_by_kafka(written) == [describe(read_records(data)) for data in written]
