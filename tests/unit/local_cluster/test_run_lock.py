from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from braidlog.local_cluster.run_lock import RunLock


def test_one_holds_it_and_is_named(tmp_path: Path) -> None:
    held = RunLock(tmp_path, "lock", "a program", print)
    with pytest.raises(UserError, match=f"in use by another `a program`, pid {os.getpid()}: stop that first"):
        RunLock(tmp_path, "lock", "a program", print)
    held.close()
    RunLock(tmp_path, "lock", "a program", print).close()


def test_processes_of_a_program_that_is_dead_are_waited_for(tmp_path: Path) -> None:
    held = RunLock(tmp_path, "lock", "a program", print)
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=[held.descriptor]
    )
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    os.pwrite(held.descriptor, f"{dead.pid}\n".encode().ljust(16), 0)
    held.close()
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        child.communicate()

    RunLock(tmp_path, "lock", "a program", say).close()
    assert said == ["brokers of an earlier run, which was killed, are still stopping: waiting for them"]
