"""Owners that are collected, closed or forked away, over a fake network; and calls from two threads."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from braidlog.client.consumer import lifetime
from braidlog.client.consumer.lifetime import ConsumerLifetime, OneThread
from braidlog.client.errors import ClosedError, ConcurrentUseError


class FakeNetwork:
    def __init__(self) -> None:
        self.abandoned: list[bool] = []
        self.done = threading.Event()

    def abandon(self, *, keep_engine: bool = False) -> threading.Event:
        self.abandoned.append(keep_engine)
        return self.done


class Owner:
    def __init__(self, network: FakeNetwork) -> None:
        self.is_forked = False
        self.lifetime = ConsumerLifetime(self, network, self._on_fork)

    def _on_fork(self) -> None:
        self.is_forked = True


def test_one_that_is_collected_is_abandoned_at_once() -> None:
    network = FakeNetwork()
    owner = Owner(network)
    gc.disable()
    try:
        assert network.abandoned == []
        owner = Owner(FakeNetwork())
        assert network.abandoned == [False]
    finally:
        gc.enable()
    owner.lifetime.end()
    network.done.set()


def test_one_that_was_closed_is_left_alone() -> None:
    network = FakeNetwork()
    owner = Owner(network)
    assert owner.lifetime.end()
    assert not owner.lifetime.end()
    assert owner.lifetime.on_exit() is None
    del owner
    assert network.abandoned == []


def test_one_that_is_open_at_the_end_leaves_and_keeps_its_engine() -> None:
    """A thread of the program may still be inside a poll."""
    network = FakeNetwork()
    owner = Owner(network)
    assert owner.lifetime.on_exit() is network.done
    assert network.abandoned == [True]
    del owner
    assert network.abandoned == [True]


def test_a_fork_calls_the_owner_in_the_child_only() -> None:
    """In a real child, since every open consumer of this process would be called as well."""
    network = FakeNetwork()
    owner = Owner(network)
    child = os.fork()
    if child == 0:
        was_called = owner.is_forked
        del owner
        lifetime._at_exit()
        os._exit(0 if was_called and network.abandoned == [] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not owner.is_forked
    owner.lifetime.end()


# --- one thread


def refused_elsewhere(guard: OneThread) -> bool:
    outcome: list[bool] = []

    def try_it() -> None:
        try:
            with guard:
                outcome.append(False)
        except ConcurrentUseError:
            outcome.append(True)

    other = threading.Thread(target=try_it)
    other.start()
    other.join()
    return outcome[0]


def test_calls_within_calls() -> None:
    guard = OneThread("consumer")
    with guard:
        with guard:
            assert refused_elsewhere(guard)
        assert refused_elsewhere(guard)
    assert not refused_elsewhere(guard)


def test_freed_by_an_error() -> None:
    guard = OneThread("consumer")
    with pytest.raises(ZeroDivisionError), guard:
        raise ZeroDivisionError
    assert not refused_elsewhere(guard)


def test_after_a_fork_every_call_is_refused_even_inside_one() -> None:
    one = OneThread("consumer")
    with one:
        one.mark_forked()
        with pytest.raises(ClosedError, match="this consumer was made before a fork"), one:
            pass
    assert one.is_forked
    with pytest.raises(ClosedError, match="make a new one here"):
        one.check()
