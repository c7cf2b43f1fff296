from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from braidlog.storage.files import OsFiles
from braidlog.storage.index.transaction_index import AbortedTxn, encode_aborted
from braidlog.storage.inspection.verify_indexes import SegmentFacts, verify_indexes
from braidlog.wire.records.batch import read_header
from support.log_kit import START_MS, batch

BASE = 10
BATCHES = [batch(b"a", b"b", base_offset=BASE + 2 * n, timestamp=START_MS + 10 * n) for n in range(3)]
SIZE = len(BATCHES[0])
SOUND_OFFSETS = pack(">iiii", 3, SIZE, 5, 2 * SIZE)
SOUND_TIMES = pack(">qi", START_MS + 11, 3) + pack(">qi", START_MS + 21, 5)


@pytest.fixture
def facts(tmp_path: Path) -> SegmentFacts:
    """Three batches of two records, offsets 10 … 15, and sound indexes."""
    facts = SegmentFacts(BASE, f"{tmp_path}/{BASE:020d}", next_offset=BASE + 6)
    for number, data in enumerate(BATCHES):
        facts.add(number * SIZE, read_header(data, 0, len(data)))
    write(facts, ".index", SOUND_OFFSETS)
    write(facts, ".timeindex", SOUND_TIMES)
    return facts


def write(facts: SegmentFacts, suffix: str, data: bytes) -> None:
    Path(facts.stem + suffix).write_bytes(data)


def found(facts: SegmentFacts) -> list[str]:
    return list(verify_indexes(OsFiles(), facts))


def test_sound_indexes_say_nothing(facts: SegmentFacts) -> None:
    write(facts, ".txnindex", encode_aborted(AbortedTxn(1, 10, 13, 14)))
    assert found(facts) == []


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (pack(">iiii", 5, 2 * SIZE, 3, SIZE), "does not ascend"),
        (pack(">ii", 3, SIZE + 1), f"position {SIZE + 1}, where no batch starts"),
        (pack(">ii", 2, SIZE), "leads offset 12 to the batch of 12 … 13"),
        (pack(">ii", 99, SIZE), "leads offset 109"),
    ],
)
def test_offset_entries_that_lead_astray(facts: SegmentFacts, entries: bytes, message: str) -> None:
    write(facts, ".index", entries)
    (problem,) = found(facts)
    assert message in problem
    assert ".index" in problem


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (SOUND_TIMES[12:] + SOUND_TIMES[:12], "does not ascend"),
        (pack(">qi", START_MS, 99), "names offset 109, which the segment does not have"),
        (pack(">qi", START_MS + 5, 3), f"as the youngest up to offset 13, but {START_MS + 11} is"),
    ],
)
def test_time_entries_that_are_wrong(facts: SegmentFacts, entries: bytes, message: str) -> None:
    write(facts, ".timeindex", entries)
    (problem,) = found(facts)
    assert message in problem


def test_missing_indexes_are_named_with_what_to_do(facts: SegmentFacts) -> None:
    for suffix in (".index", ".timeindex"):
        Path(facts.stem + suffix).unlink()
    assert [problem.endswith("`braidlog log rebuild-index` builds it again") for problem in found(facts)] == [True] * 2


def test_markers_of_another_segment_and_broken_ones(facts: SegmentFacts) -> None:
    write(facts, ".txnindex", encode_aborted(AbortedTxn(1, 10, 99, 14)))
    assert "marker at offset 99 is not in this segment" in found(facts)[0]
    write(facts, ".txnindex", b"broken")
    assert len(found(facts)) == 1
