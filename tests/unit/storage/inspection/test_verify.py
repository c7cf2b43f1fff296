from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from braidlog.storage.inspection.verify import ERROR, NOTE, partition_directories, verify
from support.inspected_files import FILES, dumped, only


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
