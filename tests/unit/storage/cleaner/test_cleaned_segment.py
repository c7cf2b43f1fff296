from __future__ import annotations

from pathlib import Path

from braidlog.storage.cleaner.cleaned_segment import CleanedSegment, remove_cleaned
from braidlog.storage.files import OsFiles
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.transaction_index import AbortedTxn, encode_aborted
from support.log_kit import START_MS, batch

FILES = OsFiles()
NAMES = [f"{7:020d}.{kind}.cleaned" for kind in ("index", "log", "timeindex", "txnindex")]


def opened(path: Path) -> CleanedSegment:
    return CleanedSegment(FILES, HandlePool(FILES, 4), str(path), 7, interval_bytes=1, index_bytes=1 << 20)


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def test_a_finished_segment_is_whole_indexed_and_dated(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    batches = [batch(b"v", base_offset=7 + number, timestamp=START_MS + number) for number in range(3)]
    for number, data in enumerate(batches):
        segment.append(data, 7 + number, START_MS + number)
    segment.append_aborted(AbortedTxn(1, 7, 8, 8))
    assert segment.size == sum(map(len, batches))
    segment.finish(5_000)
    assert names(tmp_path) == NAMES
    log = tmp_path / NAMES[1]
    assert log.read_bytes() == b"".join(batches)
    assert log.stat().st_mtime_ns == 5_000 * 1_000_000
    assert (tmp_path / NAMES[0]).stat().st_size == 16
    assert (tmp_path / NAMES[3]).read_bytes() == encode_aborted(AbortedTxn(1, 7, 8, 8))


def test_large_passes_are_written_in_between(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    segment.append(batch(bytes(1 << 20), base_offset=7), 7, START_MS)
    assert (tmp_path / NAMES[1]).stat().st_size == segment.size


def test_a_discarded_segment_leaves_nothing(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    segment.append(batch(b"v", base_offset=7), 7, START_MS)
    segment.discard()
    assert names(tmp_path) == []


def test_what_an_interrupted_pass_left_is_not_taken_over(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_bytes(b"old")
    (tmp_path / "00000000000000000007.log").write_bytes(b"current")
    remove_cleaned(FILES, str(tmp_path), 7)
    assert names(tmp_path) == ["00000000000000000007.log"]
    (tmp_path / NAMES[3]).write_bytes(b"old")
    segment = opened(tmp_path)
    segment.finish(0)
    assert not (tmp_path / NAMES[3]).exists()
