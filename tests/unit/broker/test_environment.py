from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from braidlog.broker import environment
from braidlog.broker.environment import Executors, memory_of_this_process, system_environment


async def test_a_directory_has_one_executor_and_done_is_called_on_the_loop() -> None:
    made: list[str] = []

    def make(directory: str) -> ThreadPoolExecutor:
        made.append(directory)
        return ThreadPoolExecutor(1)

    executors = Executors(make)
    finished: asyncio.Future[tuple[Exception | None, int]] = asyncio.get_running_loop().create_future()

    def fail() -> None:
        raise ValueError(threading.current_thread().name)

    executors.run("/a", fail, lambda problem: finished.set_result((problem, threading.get_ident())))
    problem, thread = await finished
    assert isinstance(problem, ValueError)
    assert threading.main_thread().name not in str(problem)
    assert thread == threading.get_ident()
    assert executors.of("/a") is executors.of("/a")
    assert executors.of("/b") is not executors.of("/a")
    assert made == ["/a", "/b"]
    executors.close()


def test_the_first_threads_run_before_there_is_work_for_them() -> None:
    executors = system_environment(threads_per_directory=3).executors
    executors.start(["/a"])
    executors.of("/b")
    named = Counter(thread.name.rpartition("_")[0] for thread in threading.enumerate())
    executors.close()
    assert (named["braidlog /a"], named["braidlog /b"]) == (2, 0)


@pytest.mark.parametrize(("text", "limited"), [("1000\n", True), ("max\n", False)])
def test_the_limit_of_a_control_group_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, limited: bool
) -> None:
    before = memory_of_this_process()
    (tmp_path / "memory.max").write_text(text)
    monkeypatch.setattr(environment, "_CGROUP_LIMITS", (str(tmp_path / "memory.max"), str(tmp_path / "missing")))
    monkeypatch.setattr(environment, "_own_cgroup_limits", list)
    assert memory_of_this_process() == 1000 if limited else memory_of_this_process() >= before


def test_the_real_world_has_memory_and_processors() -> None:
    real = system_environment()
    assert real.memory_bytes > 1 << 20
    assert real.cpus >= 1
    assert len(real.new_id()) == 16
    assert real.new_id() != real.new_id()
