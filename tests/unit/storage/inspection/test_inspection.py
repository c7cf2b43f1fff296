from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import ManualClock
from braidlog.core.errors import UserError
from braidlog.core.ids import parse_id
from braidlog.core.slices import ByteSlice
from braidlog.storage.files import OsFiles
from braidlog.storage.inspection.batches import FoundBatch, Gap, walk_file
from braidlog.storage.inspection.dump import Entry, dump_file, entry_text, readable
from braidlog.storage.inspection.rebuild import rebuild_index
from braidlog.storage.inspection.verify import ERROR, NOTE, partition_directories, verify
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.wire.records.batch import ATTRIBUTES_AT
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record
from braidlog.wire.records.validation import ORIGIN_COORDINATOR
from support.manager_fixture import NOW, Broker, append, tp

FILES = OsFiles()
ID = parse_id("AAECAwQFBgcICQoLDA0ODw")


def produce(log: UnifiedLog, data: bytes, **fields: int) -> None:
    origin = {"origin": ORIGIN_COORDINATOR} if fields.get("marker") else {}
    log.append_as_leader(ByteSlice(data, 0, len(data)), 3, now_ms=NOW, **origin)
    log.write_staged()
    log.advance_high_watermark(log.log_end_offset)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Two segments of twenty batches each, an aborted transaction in the first, closed by a clean stop."""
    broker = Broker(tmp_path)
    broker.topic_settings["x"] = LogSettings(index_interval_bytes=200)
    log = broker.start().manager.create(tp("x"), topic_id=ID)
    for segment in range(2):
        for number in range(18):
            append(log, (f"key{number}", f"value {segment} {number}"), (None, "\x00\xff"), timestamp=NOW + number)
        fields = {"producer_id": 5, "producer_epoch": 1, "base_sequence": segment, "transactional": True}
        produce(log, build_batch([Record(key=b"t", value=b"in doubt", timestamp=NOW)], **fields))  # type: ignore[arg-type]
        produce(
            log, build_end_txn_marker(commit=segment == 1, producer_id=5, producer_epoch=1, timestamp=NOW), marker=1
        )
        if segment == 0:
            log.roll()
    broker.manager.close()
    return tmp_path / "x-0"


def only(directory: Path, suffix: str) -> list[str]:
    return [str(path) for path in sorted(directory.iterdir()) if path.name.endswith(suffix)]


def dumped(path: str | Path, **options: bool) -> list[Entry]:
    entries = list(dump_file(FILES, str(path), **options))
    for entry in entries:
        assert json.loads(json.dumps(entry)) == entry
        assert entry_text(entry)
    return entries


def test_batches_and_records_are_listed(partition: Path) -> None:
    first = only(partition, ".log")[0]
    batches = dumped(first)
    assert [entry["base_offset"] for entry in batches] == [*range(0, 36, 2), 36, 37]
    assert batches[0]["is_valid"] is True
    assert batches[0]["leader_epoch"] == 0
    assert (batches[18]["is_transactional"], batches[18]["producer_id"]) == (True, 5)
    everything = dumped(first, records=True)
    records = [entry for entry in everything if entry["type"] == "record"]
    assert records[0]["key"] == "key0"
    assert records[0]["value"] == "value 0 0"
    assert records[1]["key"] is None
    assert str(records[1]["value"]).startswith("base64:")
    assert records[-1]["marker"] == "abort"
    assert "base_offset: 0" in entry_text(batches[0])


def test_every_other_kind_of_file_is_listed(partition: Path) -> None:
    data_directory = partition.parent
    index = dumped(only(partition, ".index")[0])
    assert len(index) > 3
    assert all(int(str(entry["position"])) > 0 for entry in index)
    assert [entry["timestamp"] for entry in dumped(only(partition, ".timeindex")[0])][-1] == NOW + 17
    assert dumped(only(partition, ".txnindex")[0]) == [
        {"type": "aborted", "producer_id": 5, "first_offset": 36, "last_offset": 37, "last_stable_offset": 38}
    ]
    (producer,) = dumped(only(partition, ".snapshot")[-1])
    assert (producer["producer_id"], producer["last_sequence"]) == (5, 1)
    assert dumped(partition / "leader-epoch-checkpoint")[0]["epoch"] == 0
    assert dumped(partition / "partition.metadata")[1]["value"] == "AAECAwQFBgcICQoLDA0ODw"
    assert dumped(data_directory / "recovery-point-offset-checkpoint") == [
        {"type": "offset", "topic": "x", "partition": 0, "offset": 76}
    ]
    assert {str(entry["name"]): entry["value"] for entry in dumped(data_directory / "meta.properties")}[
        "cluster.id"
    ] == "cluster"


def test_files_in_between_and_broken_ones_are_listed_too(partition: Path) -> None:
    log = Path(only(partition, ".log")[0])
    log.rename(log.with_name(log.name + ".deleted"))
    assert len(dumped(log.with_name(log.name + ".deleted"))) == 20
    for suffix in (".snapshot", ".txnindex"):
        path = Path(only(partition, suffix)[0])
        path.write_bytes(b"not what it was")
        assert [entry["type"] for entry in dumped(path)] == ["problem"]
    checkpoint = partition / "leader-epoch-checkpoint"
    checkpoint.write_text("9")
    assert dumped(checkpoint)[0]["type"] == "problem"


def test_a_file_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match="no file that can be listed"):
        dump_file(FILES, str(tmp_path / "notes.txt"))
    with pytest.raises(UserError, match="does not exist"):
        dump_file(FILES, str(tmp_path / "gone.log"))


def test_readable_values() -> None:
    assert readable(None) is None
    assert readable(b"") == ""
    assert readable("grün".encode()) == "grün"
    assert readable(b"\xff") == "base64:/w=="
    assert readable(b"a\x00") == "base64:YQA="


def test_a_sound_directory_verifies_and_is_not_changed(partition: Path) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition.iterdir()}
    steps: list[tuple[int, int, str]] = []
    report = verify(FILES, str(partition), records=True, progress=lambda *step: steps.append(step))
    assert report.findings == []
    assert report.is_sound
    assert (report.segments, report.batches, report.records) == (2, 40, 76)
    assert (report.start_offset, report.end_offset) == (0, 76)
    assert [step[0] for step in steps][-1] == steps[-1][1] == report.bytes
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition.iterdir()} == before


def test_a_flipped_bit_names_the_lost_offsets(partition: Path) -> None:
    path = Path(only(partition, ".log")[0])
    batch = dumped(path)[4]
    data = bytearray(path.read_bytes())
    data[int(str(batch["position"])) + 70] ^= 4
    path.write_bytes(bytes(data))
    report = verify(FILES, str(partition))
    assert [(finding.first_offset, finding.end_offset) for finding in report.lost] == [(8, 10)]
    assert "corrupt" in report.lost[0].message
    assert report.batches == 40


def test_bytes_that_are_no_batch_are_passed_over_and_named(partition: Path) -> None:
    path = Path(only(partition, ".log")[0])
    entries = dumped(path)
    start, end = int(str(entries[5]["position"])), int(str(entries[7]["position"]))
    data = bytearray(path.read_bytes())
    data[start:end] = b"\xee" * (end - start)
    path.write_bytes(bytes(data))
    report = verify(FILES, str(partition))
    assert [(finding.first_offset, finding.end_offset) for finding in report.lost] == [(10, 14)]
    assert report.batches == 38
    assert not report.is_sound
    assert [entry["type"] for entry in dumped(path)].count("problem") == 1


def test_an_unfinished_write_at_the_end_is_only_noted(partition: Path) -> None:
    path = Path(only(partition, ".log")[1])
    batch = dumped(path)[0]
    size = int(str(batch["size"]))
    data = path.read_bytes()
    path.write_bytes(data + data[: size // 2])
    report = verify(FILES, str(partition))
    assert report.is_sound
    assert [finding.severity for finding in report.findings] == [NOTE]
    path.write_bytes(data + bytes(100))
    assert verify(FILES, str(partition)).is_sound
    # In a segment that is not the last it is damage.
    older = Path(only(partition, ".log")[0])
    older.write_bytes(older.read_bytes()[:-10])
    report = verify(FILES, str(partition))
    assert [(finding.first_offset, finding.end_offset) for finding in report.lost] == [(37, 38)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_each_side_file_is_checked(partition: Path, suffix: str) -> None:
    path = Path(only(partition, suffix)[0])
    data = bytearray(path.read_bytes())
    data[-9] ^= 0x40
    path.write_bytes(bytes(data))
    errors = [finding for finding in verify(FILES, str(partition)).findings if finding.severity == ERROR]
    assert len(errors) == 1
    assert suffix in errors[0].message + errors[0].path


def test_missing_things_are_named(partition: Path) -> None:
    Path(only(partition, ".index")[0]).unlink()
    findings = verify(FILES, str(partition)).findings
    assert ["rebuild-index" in finding.message for finding in findings] == [True]


def test_directories_are_found_below_a_data_directory(partition: Path, tmp_path: Path) -> None:
    assert partition_directories(FILES, str(tmp_path)) == [str(partition)]
    assert partition_directories(FILES, str(partition) + "/") == [str(partition)]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError):
        partition_directories(FILES, str(tmp_path / "empty"))
    with pytest.raises(UserError):
        verify(FILES, str(tmp_path / "empty"))


def test_indexes_are_built_again_as_they_were(partition: Path) -> None:
    names = [*only(partition, "index")]
    before = {name: Path(name).read_bytes() for name in names}
    logs = {name: Path(name).read_bytes() for name in only(partition, ".log")}
    for name in names:
        Path(name).unlink()
    steps: list[tuple[int, int, str]] = []
    rebuilt = rebuild_index(
        FILES, str(partition), ManualClock(NOW), progress=lambda *step: steps.append(step), interval_bytes=200
    )
    assert {name: Path(name).read_bytes() for name in names} == before
    assert [segment.problem for segment in rebuilt] == [None, None]
    assert [segment.aborted_transactions for segment in rebuilt] == [1, 0]
    assert len(steps) == 2
    assert {name: Path(name).read_bytes() for name in logs} == logs
    assert verify(FILES, str(partition)).is_sound


def test_indexes_end_where_a_segment_is_damaged_and_the_log_stays(partition: Path) -> None:
    path = Path(only(partition, ".log")[0])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    rebuilt = rebuild_index(FILES, str(partition), ManualClock(NOW), interval_bytes=200)
    assert rebuilt[0].problem is not None
    assert 0 < rebuilt[0].bytes_read < rebuilt[0].size
    assert path.read_bytes() == bytes(data)


def test_a_running_broker_is_not_disturbed(partition: Path, tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    with pytest.raises(UserError, match="in use"):
        rebuild_index(FILES, str(partition), ManualClock(NOW))
    broker.manager.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damage=st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=40)), max_size=3),
    cut=st.integers(0, 300),
)
def test_whatever_is_done_to_a_file_the_walk_accounts_for_every_byte(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, bytes]], cut: int
) -> None:
    records = [Record(key=b"k%d" % number, value=b"v" * number, timestamp=NOW) for number in range(20)]
    data = bytearray(b"".join(build_batch([record], base_offset=number) for number, record in enumerate(records)))
    whole = bytes(data)
    for position, garbage in damage:
        data[position : position + len(garbage)] = garbage
    del data[len(data) - cut :]
    path = tmp_path_factory.mktemp("walk") / "00000000000000000000.log"
    path.write_bytes(bytes(data))
    position = 0
    for found in walk_file(FILES, str(path)):
        assert found.position == position
        position += found.size if isinstance(found, Gap) else found.header.size
        if isinstance(found, FoundBatch) and found.is_valid:
            # From the attributes on the checksum vouches for it.
            assert found.data[ATTRIBUTES_AT:] in whole
    assert position == len(data)
