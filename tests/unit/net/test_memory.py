from __future__ import annotations

import pytest

from braidlog.net.memory import MemoryBudget, MemoryPool, RequestMemory, ResponseMemory, default_memory_max


def test_who_asked_first_is_granted_first() -> None:
    pool = MemoryPool(100)
    granted: list[str] = []
    assert pool.reserve(60, lambda: granted.append("never called"))
    assert not pool.reserve(80, lambda: granted.append("large"))
    # It would fit, but must not overtake: the large one would wait for ever.
    assert not pool.reserve(10, lambda: granted.append("small"))
    pool.release(60)
    assert granted == ["large", "small"]
    assert pool.used == 90
    assert pool.waits == 2


def test_what_is_charged_counts_although_it_does_not_fit() -> None:
    pool = MemoryPool(100)
    pool.charge(150)
    granted: list[bool] = []
    assert not pool.reserve(10, lambda: granted.append(True))
    pool.charge(-100)
    assert granted == [True]
    assert pool.used == 60


class Unread:
    peer_host = "192.0.2.1"

    def __init__(self, memory: ResponseMemory) -> None:
        self.memory = memory
        self.unsent_memory = 0
        self.reason: str | None = None

    def hold(self, size: int) -> None:
        before, self.unsent_memory = self.unsent_memory, size
        self.memory.changed(self, before)

    def close(self, reason: str) -> None:
        self.reason = reason
        self.hold(0)


def test_the_largest_unread_answers_go_first_and_no_more_than_needed(caplog: pytest.LogCaptureFixture) -> None:
    memory = ResponseMemory(100)
    small, large, middle = (Unread(memory) for _ in range(3))
    small.hold(10)
    large.hold(60)
    assert memory.tight
    middle.hold(40)
    assert [each.reason is None for each in (small, large, middle)] == [True, False, True]
    assert memory.used == 50
    assert memory.closed == 1
    assert "braidlog.memory.max" in caplog.text


def test_the_budget_is_shared_out() -> None:
    budget = MemoryBudget(1000)
    assert (budget.requests.limit, budget.conversions.limit, budget.answers.limit) == (500, 250, 250)
    assert MemoryBudget(1000, 200).requests.limit == 200
    assert MemoryBudget(1000, -1).requests.limit == 500


def test_the_default_follows_the_machine() -> None:
    assert default_memory_max(200 << 20) == 100 << 20
    assert default_memory_max(64 << 30) == 1 << 30


class Receiver:
    def __init__(self, memory: RequestMemory, last_active: float, waits: bool) -> None:
        self.memory = memory
        self.last_active = last_active
        self.waits_for_memory = waits
        self.closed = False
        self.unused = 0
        memory.began(self)

    def give_back_unused(self) -> None:
        self.memory.release(self.unused)
        self.unused = 0

    def close(self, reason: str) -> None:
        self.closed = True
        self.memory.ended(self)


def test_who_does_not_send_gives_way_and_else_the_newest() -> None:
    memory = RequestMemory(100)
    memory.charge(100)
    assert not memory.reserve(10, lambda: None)
    waiting = [Receiver(memory, 0.0, True) for _ in range(3)]
    silent, sending = Receiver(memory, 0.0, False), Receiver(memory, 9.8, False)
    memory.close_stalled(9.0)
    memory.close_stalled(10.0)
    assert not any(each.closed for each in (*waiting, silent, sending)), "what still arrives comes to its end"
    sending.close("done")
    memory.close_stalled(11.0)
    assert [each.closed for each in (*waiting, silent)] == [False, False, False, True]
    memory.close_stalled(12.0)
    assert [each.closed for each in waiting] == [False, False, True]


def test_as_long_as_somebody_is_granted_memory_nobody_gives_way() -> None:
    memory = RequestMemory(100)
    memory.charge(100)
    receiver = Receiver(memory, 0.0, False)
    for _ in range(3):
        assert not memory.reserve(10, lambda: None)
    memory.close_stalled(9.0)
    memory.release(10)
    memory.close_stalled(10.0)
    assert not receiver.closed
    memory.close_stalled(11.0)
    assert receiver.closed


def test_a_burst_is_noticed_once_when_it_is_over() -> None:
    budget = MemoryBudget(1 << 30)
    assert not budget.has_emptied()
    budget.requests.charge(64 << 20)
    assert not budget.has_emptied()
    budget.requests.charge(-(64 << 20))
    assert budget.has_emptied()
    assert not budget.has_emptied()


def test_a_size_that_is_claimed_holds_up_nobody() -> None:
    memory = RequestMemory(100)
    memory.charge(100)
    silent, sending = Receiver(memory, 0.0, False), Receiver(memory, 9.9, False)
    silent.unused = sending.unused = 40
    granted: list[bool] = []
    assert not memory.reserve(30, lambda: granted.append(True))
    memory.close_stalled(10.0)
    assert granted == [True]
    assert (silent.unused, sending.unused) == (0, 40)
    assert not silent.closed
