from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.core.errors import StorageFault, UserError
from braidlog.storage.dirs.directory_lock import lock_directory


def test_a_second_broker_of_the_same_process_is_refused(tmp_path: Path) -> None:
    held = lock_directory(str(tmp_path))
    with pytest.raises(UserError, match="in use by another broker"):
        lock_directory(str(tmp_path))
    held.release()
    lock_directory(str(tmp_path)).release()


def test_another_process_is_named(tmp_path: Path) -> None:
    # A range lock is what a Java broker takes.
    script = (
        "import fcntl, sys\n"
        f"file = open({str(tmp_path / '.lock')!r}, 'w')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(UserError, match=f"in use by process {holder.pid}.*log.dirs"):
            lock_directory(str(tmp_path))
        holder.communicate()
    lock_directory(str(tmp_path)).release()


def test_a_directory_that_is_not_there_is_the_disks_fault(tmp_path: Path) -> None:
    with pytest.raises(StorageFault):
        lock_directory(str(tmp_path / "gone"))
