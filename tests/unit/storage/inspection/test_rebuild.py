from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.clock import ManualClock
from braidlog.core.errors import UserError
from braidlog.storage.inspection.rebuild import rebuild_index
from braidlog.storage.inspection.verify import verify
from support.inspected_files import FILES, only
from support.manager_fixture import NOW, Broker


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
