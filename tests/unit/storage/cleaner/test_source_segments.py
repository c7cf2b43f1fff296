from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.errors import CorruptLogError
from braidlog.storage.cleaner.source_segments import SegmentReader, measure_segment, read_aborted
from braidlog.storage.files import OsFiles
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.transaction_index import AbortedTxn
from support.cleaner_fixture import SegmentDirectory
from support.log_kit import batch

FILES = OsFiles()
BATCHES = [batch(b"%d" % number * size, base_offset=number) for number, size in enumerate((1, 500, 3, 2000, 5))]


@pytest.fixture
def directory(tmp_path: Path) -> SegmentDirectory:
    directory = SegmentDirectory(tmp_path / "t-0")
    directory.write(BATCHES)
    return directory


def reader(directory: SegmentDirectory, chunk_bytes: int, size: int | None = None) -> SegmentReader:
    whole = directory.file(0, ".log").stat().st_size
    return SegmentReader(FILES, str(directory.path), 0, whole if size is None else size, chunk_bytes)


@pytest.mark.parametrize("chunk_bytes", [1, 100, 700, 1 << 20])
def test_chunks_are_whole_batches_and_together_the_segment(directory: SegmentDirectory, chunk_bytes: int) -> None:
    reading = reader(directory, chunk_bytes)
    data, offsets = b"", []
    while (headers := reading.next_chunk()) is not None:
        assert headers
        assert reading.chunk_start == len(data)
        data += reading.buffer[: reading.chunk_bytes]
        offsets += [header.base_offset for header in headers]
    reading.close()
    assert data == b"".join(BATCHES)
    assert offsets == [0, 1, 2, 3, 4]


def test_stray_bytes_at_the_end_are_named(directory: SegmentDirectory) -> None:
    with directory.file(0, ".log").open("ab") as file:
        file.write(b"abc")
    reading = reader(directory, 1 << 20)
    reading.next_chunk()
    with pytest.raises(CorruptLogError, match="3 stray bytes"):
        reading.next_chunk()


def test_a_batch_longer_than_the_segment_is_named(directory: SegmentDirectory) -> None:
    reading = reader(directory, 1 << 20, size=len(BATCHES[0]) + 100)
    reading.next_chunk()
    with pytest.raises(CorruptLogError, match="no whole batch"):
        reading.next_chunk()


def test_a_segment_is_measured_with_its_indexes(directory: SegmentDirectory) -> None:
    directory.file(0, ".index").write_bytes(bytes(16))
    directory.file(0, ".timeindex").unlink()
    found = measure_segment(FILES, str(directory.path), 0, 4321)
    assert (found.base_offset, found.size, found.index_size, found.time_index_size) == (0, 4321, 16, 0)
    assert found.last_modified_ms == pytest.approx(directory.file(0, ".log").stat().st_mtime * 1000, abs=2)


def test_aborted_transactions_of_all_segments(directory: SegmentDirectory) -> None:
    one, two = AbortedTxn(1, 5, 6, 6), AbortedTxn(2, 7, 8, 8)
    directory.write([batch(b"x", base_offset=5)], [one])
    directory.write([batch(b"x", base_offset=7)], [two])
    found = read_aborted(FILES, HandlePool(FILES, 4), str(directory.path), directory.bases())
    assert found == [one, two]
