from __future__ import annotations

from collections.abc import Callable

from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Exchange, Part
from braidlog.net.round import Round


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
        super().__init__(FrameHandler(), round_, "PLAINTEXT", "test")
        self.log = log

    def send(self, parts: list[Part]) -> None:
        self.log.append(f"send {b''.join(part for part in parts if isinstance(part, bytes)).decode()}")

    def resume(self) -> None:
        self.log.append("resume")

    def answer(self, text: str) -> None:
        exchange = Exchange(self, 0, 0, 1, None, 0.0)
        self.begin(exchange)
        exchange.reply([text.encode()])


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
