"""Closed segments on disk for compaction passes, and what is in them afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from braidlog.storage.cleaner.cleaning_request import CleanerConfig, CleaningRequest, CleaningResult, LastRecord
from braidlog.storage.cleaner.pass_runner import InlinePassRunner
from braidlog.storage.files import OsFiles
from braidlog.storage.index.transaction_index import AbortedTxn, encode_aborted
from braidlog.wire.records.batch import BatchHeader, iterate_headers
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record, read_batch

NOW = 1_700_000_000_000
DAY = 86_400_000


class SegmentDirectory:
    """Segments given as lists of whole batches; `compact` swaps as the broker would, without a log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        self.first_dirty = 0

    def write(self, batches: Sequence[bytes], aborted: Sequence[AbortedTxn] = ()) -> None:
        """One more closed segment."""
        data = b"".join(batches)
        base_offset = iterate_headers(data, 0, len(data))[0].base_offset
        self.file(base_offset, ".log").write_bytes(data)
        self.file(base_offset, ".index").write_bytes(b"")
        self.file(base_offset, ".timeindex").write_bytes(b"")
        if aborted:
            self.file(base_offset, ".txnindex").write_bytes(b"".join(map(encode_aborted, aborted)))

    def file(self, base_offset: int, suffix: str) -> Path:
        return self.path / f"{base_offset:020d}{suffix}"

    def bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self.path.glob("*.log"))

    def request(
        self,
        first_uncleanable: int,
        *,
        now_ms: int = NOW,
        max_segment_bytes: int = 1 << 20,
        memory: CleanerConfig | None = None,
        producers: tuple[LastRecord, ...] = (),
    ) -> CleaningRequest:
        return CleaningRequest(
            directory=str(self.path),
            segments=tuple((base, self.file(base, ".log").stat().st_size) for base in self.bases()),
            first_dirty=self.first_dirty,
            first_uncleanable=first_uncleanable,
            now_ms=now_ms,
            delete_retention_ms=DAY,
            max_segment_bytes=max_segment_bytes,
            max_index_bytes=1 << 20,
            index_interval_bytes=64,
            memory=memory or CleanerConfig(),
            producers=producers,
        )

    def compact(self, request: CleaningRequest) -> CleaningResult:
        result = InlinePassRunner(OsFiles()).run(request, lambda: False)
        self.swap(result)
        return result

    def swap(self, result: CleaningResult) -> None:
        for group in result.groups:
            for base in group.replaces:
                for suffix in (".log", ".index", ".timeindex", ".txnindex"):
                    self.file(base, suffix).unlink(missing_ok=True)
            for path in self.path.glob(f"{group.base_offset:020d}.*.cleaned"):
                path.rename(path.with_suffix(""))
        assert not list(self.path.glob("*.cleaned"))
        self.first_dirty = result.end_offset

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        found = []
        for base in self.bases():
            data = self.file(base, ".log").read_bytes()
            found += [(header, read_batch(data, header)) for header in iterate_headers(data, 0, len(data))]
        return found

    def records(self) -> list[Record]:
        """Data records only."""
        return [record for header, records in self.batches() if not header.is_control for record in records]

    def state(self) -> dict[bytes, bytes]:
        """What a consumer that reads everything knows in the end."""
        latest: dict[bytes, bytes] = {}
        for record in self.records():
            assert record.key is not None
            if record.value is None:
                latest.pop(record.key, None)
            else:
                latest[record.key] = record.value
        return latest


def later(request: CleaningRequest, now_ms: int) -> CleaningRequest:
    return replace(request, now_ms=now_ms)


def three_keys(tmp_path: Path) -> SegmentDirectory:
    """Nine records of three keys in one segment."""
    directory = SegmentDirectory(tmp_path / "t-0")
    records = [Record(key=b"%d" % (number % 3), value=b"v%d" % number, timestamp=NOW) for number in range(9)]
    directory.write([build_batch(records)])
    return directory
