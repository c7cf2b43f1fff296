from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from braidlog.storage.inspection.dump import dump_file, entry_text, readable
from support.inspected_files import FILES, dumped, only
from support.manager_fixture import NOW


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
