"""Readers that tasks of one worker share, one after another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import pytest

from pyspark_braidlog.client_pool import ClientPool

HERE = {"bootstrap.servers": "here:1"}
THERE = {"bootstrap.servers": "there:1"}


class Reader:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.process = 1
        self.made: list[Reader] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.pool = ClientPool(
            self._make,
            now=lambda: self.now,
            process=lambda: self.process,
            call_later=lambda delay_s, action: self.timers.append((self.now + delay_s, action)),
        )

    def _make(self, settings: Mapping[str, str]) -> Reader:
        self.made.append(Reader(settings))
        return self.made[-1]

    def advance_to(self, when: float) -> None:
        while self.timers and min(self.timers)[0] <= when:
            due = min(self.timers)
            self.timers.remove(due)
            self.now, action = due
            action()
        self.now = when

    def use(self, settings: Mapping[str, str] = HERE) -> Reader:
        with self.pool.use(settings) as reader:
            assert isinstance(reader, Reader)
            return reader


def test_tasks_share_a_reader_of_their_settings() -> None:
    world = World()
    assert world.use(HERE) is world.use(dict(reversed(HERE.items())))
    assert world.use(THERE) is not world.use(HERE)
    assert [each.settings for each in world.made] == [HERE, THERE]


def test_a_reader_has_one_user_at_a_time() -> None:
    world = World()
    with world.pool.use(HERE) as first, world.pool.use(HERE) as second:
        assert first is not second


def test_one_that_failed_is_closed() -> None:
    world = World()
    with pytest.raises(OSError, match="broken"), world.pool.use(HERE):
        raise OSError("broken")
    assert world.made[0].is_closed
    assert world.use() is not world.made[0]


def test_who_reads_no_further_gives_it_back() -> None:
    world = World()

    def rows() -> Iterator[int]:
        with world.pool.use(HERE):
            yield from range(10)

    reading = rows()
    assert next(reading) == 0
    reading.close()  # type: ignore[attr-defined]
    assert world.use() is world.made[0]


def test_after_a_fork_the_child_makes_its_own() -> None:
    world = World()
    before = world.use()
    world.process = 2
    after = world.use()
    assert after is not before
    # Its connections are the parent's, who may be using them.
    assert not before.is_closed
    assert world.use() is after


def test_one_that_was_in_use_at_a_fork_is_not_taken_back_by_the_child() -> None:
    world = World()
    with world.pool.use(HERE):
        world.process = 2
    assert world.use() is world.made[1]


def test_one_that_rested_long_is_closed_without_another_use() -> None:
    world = World()
    world.use(THERE)
    world.advance_to(59.0)
    world.use(HERE)
    assert [each.is_closed for each in world.made] == [False, False]
    world.advance_to(61.0)
    assert [each.is_closed for each in world.made] == [True, False]
    world.advance_to(120.0)
    assert [each.is_closed for each in world.made] == [True, True]


def test_one_that_is_used_again_and_again_stays() -> None:
    world = World()
    for now in range(0, 600, 30):
        world.advance_to(float(now))
        world.use()
    assert len(world.made) == 1
    assert not world.made[0].is_closed


def test_no_timer_runs_while_nothing_rests() -> None:
    world = World()
    world.use()
    world.use(THERE)
    assert len(world.timers) == 1
    world.advance_to(100.0)
    assert world.timers == []
    world.use()
    assert len(world.timers) == 1


FORKING = """
import os
from pyspark_braidlog.source.partition_reader import READERS
settings = {"bootstrap.servers": "localhost:1"}

def use():
    with READERS.use(settings) as reader:
        reader.read("t", 0, 0, 1).close()
        return id(reader)

assert use() == use()
child = os.fork()
if child == 0:
    assert use() == use()
    raise SystemExit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
use()
"""


def test_a_process_with_resting_readers_can_fork_and_end() -> None:
    ended = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
