from __future__ import annotations

import errno
import pickle

import pytest

from braidlog.core.errors import StorageFault, is_disk_full


@pytest.mark.parametrize(
    ("fault", "full"),
    [
        (OSError(errno.ENOSPC, "full"), True),
        (OSError(errno.EDQUOT, "quota"), True),
        (OSError(errno.EIO, "broken"), False),
        (StorageFault("/d", "cannot write", OSError(errno.ENOSPC, "full")), True),
        (StorageFault("/d", "cannot write", OSError(errno.EIO, "broken")), False),
        (StorageFault("/d", "cannot write"), False),
        (ValueError("a bug"), False),
    ],
)
def test_only_a_lack_of_room_is_a_full_disk(fault: BaseException, full: bool) -> None:
    assert is_disk_full(fault) is full


def test_a_fault_keeps_its_directory_and_cause_on_its_way_to_another_process() -> None:
    fault = pickle.loads(pickle.dumps(StorageFault("/d", "cannot write", OSError(errno.ENOSPC, "full"))))
    assert (fault.directory, fault.reason) == ("/d", "cannot write")
    assert str(fault) == "data directory /d: cannot write"
    assert is_disk_full(fault)
