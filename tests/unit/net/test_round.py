from __future__ import annotations

from collections.abc import Callable

import pytest

from braidlog.net.channel import BACKLOG_HIGH, BACKLOG_LOW, Channel, FrameHandler
from braidlog.net.exchange import Exchange, Part
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from support.exchanges import reply


class ManualLoop:
    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()


class MemoryChannel(Channel):
    def __init__(self, round_: Round, log: list[str]) -> None:
        super().__init__(FrameHandler(), round_, MemoryBudget(1 << 20), "PLAINTEXT", "test")
        self.log = log

    def send(self, parts: list[Part]) -> None:
        self.log.append(f"send {b''.join(part for part in parts if isinstance(part, bytes)).decode()}")

    def resume(self) -> None:
        self.log.append("resume")

    def answer(self, text: str) -> None:
        exchange = Exchange(self, 0, 0, 1, None, 0.0)
        self.begin(exchange)
        reply(exchange, [text.encode()])


def test_staged_work_is_committed_before_any_reply_leaves() -> None:
    loop, log = ManualLoop(), []
    round_ = Round(loop)
    round_.on_commit(lambda: log.append("commit"))
    first, second = MemoryChannel(round_, log), MemoryChannel(round_, log)
    first.answer("a")
    first.answer("b")
    second.answer("c")
    assert log == []
    loop.turn()
    assert log == ["commit", "send ab", "send c"]


def test_a_lone_connection_is_answered_at_once() -> None:
    loop, log = ManualLoop(), []
    round_ = Round(loop)
    round_.on_commit(lambda: log.append("commit"))
    channel = MemoryChannel(round_, log)
    channel.answer("a")
    round_.after_read()
    assert log == ["commit", "send a"]


def test_one_that_delivers_long_after_the_others_needs_no_turn_of_the_loop() -> None:
    loop, log = ManualLoop(), []
    round_ = Round(loop)
    round_.on_commit(lambda: log.append("commit"))
    channel = MemoryChannel(round_, log)
    round_.last_read = 1.0
    round_.before_read(1.001)
    channel.answer("a")
    assert log == []
    round_.after_read()
    assert (log, loop.soon) == (["commit", "send a"], [])
    # What is answered later, by a timer perhaps, has to wait for a turn.
    channel.answer("b")
    loop.turn()
    assert log == ["commit", "send a", "commit", "send b"]


def test_those_that_follow_each_other_at_once_are_counted() -> None:
    loop, log = ManualLoop(), []
    round_ = Round(loop)
    channels = [MemoryChannel(round_, log) for _ in range(3)]
    for _ in range(2):
        log.clear()
        for channel in channels:
            round_.before_read(2.0)
            channel.answer("x")
            round_.after_read()
            round_.last_read = 2.0
        sent_at_once = list(log)
        loop.turn()
    assert sent_at_once == []
    assert log == ["send x"] * 3


def test_busy_rounds_gather() -> None:
    loop, log = ManualLoop(), []
    round_ = Round(loop)
    channels = [MemoryChannel(round_, log) for _ in range(3)]
    for channel in channels:
        channel.answer("x")
        round_.after_read()
    loop.turn()
    log.clear()
    for channel in channels:
        channel.answer("y")
        round_.after_read()
    assert log == []
    loop.turn()
    assert log == ["send y"] * 3


def test_a_commit_may_answer_exchanges_that_leave_in_the_same_round() -> None:
    loop, log = ManualLoop(), []
    round_ = Round(loop)
    channel = MemoryChannel(round_, log)
    round_.on_commit(lambda: channel.answer("from commit"))
    round_.touch()
    loop.turn()
    assert log == ["send from commit"]


def test_what_is_staged_while_sending_gets_a_round_of_its_own() -> None:
    loop, log = ManualLoop(), []
    round_ = Round(loop)
    round_.on_commit(lambda: log.append("commit"))

    class Restaging(MemoryChannel):
        def resume(self) -> None:
            super().resume()
            self.round.touch()

    channel = Restaging(round_, log)
    channel.mute()
    channel.answer("a")
    loop.turn()
    assert log == ["commit", "send a", "resume"]
    loop.turn()
    assert log == ["commit", "send a", "resume", "commit"]


class Failing(MemoryChannel):
    """Raises at one step of its round."""

    def __init__(self, round_: Round, log: list[str], step: str) -> None:
        super().__init__(round_, log)
        self.step = step

    def _at(self, step: str) -> None:
        if step == self.step:
            raise MemoryError(step)

    def send(self, parts: list[Part]) -> None:
        self._at("send")
        super().send(parts)

    def resume(self) -> None:
        self._at("resume")
        super().resume()

    def close(self, reason: str) -> None:
        self.closed = True
        self.log.append("close")
        self._at("close")


@pytest.mark.parametrize("step", ["send", "resume"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_channels_failure_holds_up_no_other(step: str, place: int) -> None:
    loop, log = ManualLoop(), []
    round_ = Round(loop)
    channels = [MemoryChannel(round_, log) for _ in range(2)]
    failing = Failing(round_, log, step)
    channels.insert(place, failing)
    for channel in channels:
        channel.mute()
        channel.answer("x")
    loop.turn()
    others = [line for line in log if line != "close"]
    assert others.count("send x") == (2 if step == "send" else 3)
    assert others.count("resume") == 2
    assert failing.closed
    for channel in channels:
        if channel is not failing:
            channel.answer("again")
    loop.turn()
    assert log.count("send again") == 2


def test_a_channel_that_cannot_even_be_closed_holds_up_no_other() -> None:
    loop, log = ManualLoop(), []
    round_ = Round(loop)
    failing = Failing(round_, log, "send")
    failing._at = lambda step: (_ for _ in ()).throw(MemoryError(step))  # type: ignore[method-assign]
    other = MemoryChannel(round_, log)
    failing.answer("x")
    other.answer("y")
    loop.turn()
    assert "send y" in log


def test_replies_leave_although_the_commit_failed() -> None:
    loop, log = ManualLoop(), []
    round_ = Round(loop)

    def fail() -> None:
        raise MemoryError

    round_.on_commit(fail)
    channel = MemoryChannel(round_, log)
    channel.answer("x")
    loop.turn()
    assert log == ["send x"]
    channel.answer("y")
    loop.turn()
    assert log == ["send x", "send y"]


def test_a_choked_channel_goes_on_when_its_answers_have_left() -> None:
    loop, log = ManualLoop(), []
    round_ = Round(loop)
    channel = MemoryChannel(round_, log)
    exchange = Exchange(channel, 0, 0, 1, None, 0.0)
    channel.begin(exchange)
    reply(exchange, [b"a" * BACKLOG_HIGH])
    loop.turn()
    assert channel.backlogged
    assert "resume" not in log
    channel.unsent = BACKLOG_LOW + 1
    channel.resume_if_ready()
    assert "resume" not in log
    channel.unsent = BACKLOG_LOW
    channel.resume_if_ready()
    assert not channel.backlogged
    assert log[-1] == "resume"
