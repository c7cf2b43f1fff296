"""How processes are watched; `tests/cluster/test_workers.py` has the real ones."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from braidlog.local_cluster.workers import BackOff, SupervisedProcess


def test_waits_double_and_begin_anew_after_a_good_while() -> None:
    back_off = BackOff(0.5, 4.0)
    assert [back_off.after(1.0) for _ in range(5)] == [0.5, 1.0, 2.0, 4.0, 4.0]
    assert [back_off.after(60.0), back_off.after(1.0)] == [0.5, 1.0]


def child(tmp_path: Path, program: str) -> SupervisedProcess:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    return SupervisedProcess(
        "worker-7", [sys.executable, "-c", program], lock, lambda said: b"ready" in said, BackOff(0.0, 1.0)
    )


def read_until_closed(process: SupervisedProcess) -> None:
    while process.output is not None:
        assert select.select([process.output], [], [], 30)[0]
        process.read()


def test_a_process_says_that_it_is_ready_and_stops_when_it_is_asked(tmp_path: Path) -> None:
    process = child(
        tmp_path, "import os, signal; print(os.environ['BRAIDLOG_WORKER'], 'ready', flush=True); signal.pause()"
    )
    process.start()
    while not process.is_ready:
        process.read()
    assert process.exit_code is None
    # It is in a group of its own, which a Ctrl-C at the terminal does not reach.
    assert process.pid is not None
    assert os.getpgid(process.pid) == process.pid
    process.ask_to_stop()
    read_until_closed(process)
    process.kill()
    assert process.exit_code == -signal.SIGTERM


def test_a_process_that_ended_is_planned_again(tmp_path: Path) -> None:
    process = child(tmp_path, "print('ready')")
    process.start()
    read_until_closed(process)
    assert process.is_ready
    while process.exit_code is None:
        os.sched_yield()
    assert process.exit_code == 0
    assert process.plan_restart() == 0.0
    assert not process.is_ready
    assert process.start_at is not None
    process.start()
    assert process.start_at is None
    process.kill()


def test_it_sees_the_end_of_its_input_when_its_parent_ends(tmp_path: Path) -> None:
    process = child(tmp_path, "import sys; sys.stdin.read(); print('over')")
    process.start()
    assert process._child is not None
    assert process._child.stdin is not None
    process._child.stdin.close()
    read_until_closed(process)
    assert process._said == b"over\n"
    process.kill()
