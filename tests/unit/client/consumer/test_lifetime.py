"""Owners that are forgotten, closed or forked away, with the engine's side in the test's hands."""

from __future__ import annotations

import gc
import os
import threading

from braidlog.client.consumer import lifetime
from braidlog.client.consumer.lifetime import ConsumerLifetime


class Side:
    def __init__(self) -> None:
        self.abandoned: list[bool] = []
        self.done = threading.Event()

    def abandon(self, *, keep_engine: bool = False) -> threading.Event:
        self.abandoned.append(keep_engine)
        return self.done


class Owner:
    def __init__(self, side: Side) -> None:
        self.is_forked = False
        self.lifetime = ConsumerLifetime(self, side, self._on_fork)

    def _on_fork(self) -> None:
        self.is_forked = True


def test_one_that_is_forgotten_is_abandoned_at_once() -> None:
    side = Side()
    owner = Owner(side)
    gc.disable()
    try:
        assert side.abandoned == []
        owner = Owner(Side())
        assert side.abandoned == [False]
    finally:
        gc.enable()
    owner.lifetime.end()
    side.done.set()


def test_one_that_was_closed_is_left_alone() -> None:
    side = Side()
    owner = Owner(side)
    assert owner.lifetime.end()
    assert not owner.lifetime.end()
    assert owner.lifetime.on_exit() is None
    del owner
    assert side.abandoned == []


def test_one_that_is_open_at_the_end_leaves_and_keeps_its_engine() -> None:
    """A thread of the program may still be inside a poll."""
    side = Side()
    owner = Owner(side)
    assert owner.lifetime.on_exit() is side.done
    assert side.abandoned == [True]
    del owner
    assert side.abandoned == [True]


def test_a_child_tells_the_owner_and_nobody_else() -> None:
    """In a real child, since whoever is open here would be told as well."""
    side = Side()
    owner = Owner(side)
    child = os.fork()
    if child == 0:
        is_told = owner.is_forked
        del owner
        lifetime._at_exit()
        os._exit(0 if is_told and side.abandoned == [] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not owner.is_forked
    owner.lifetime.end()
