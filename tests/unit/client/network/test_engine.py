import asyncio
import selectors
import socket
import threading

import pytest

from braidlog.client.errors import ClosedError, ConcurrentUseError, RequestTimeout
from braidlog.client.network.engine import Engine, _SleepingSelector


@pytest.fixture
def engine():
    made = Engine("tester")
    yield made
    made.close()


async def _where() -> threading.Thread:
    return threading.current_thread()


def test_work_runs_on_the_engines_thread(engine: Engine) -> None:
    assert engine.run(_where()) is not threading.current_thread()
    assert engine.run(_where()) is engine.run(_where())


def test_what_work_raises_reaches_the_caller(engine: Engine) -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        engine.run(fail())


def test_a_timeout_cancels_the_work(engine: Engine) -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(RequestTimeout, match=r"0\.01 s"):
        engine.run(wait(), 0.01)
    assert cancelled.wait(60)


def test_a_timeout_of_the_work_itself_stays_what_it_is(engine: Engine) -> None:
    async def late() -> None:
        raise TimeoutError("own")

    with pytest.raises(TimeoutError, match="own"):
        engine.run(late(), 5)


def test_waiting_for_itself_is_refused(engine: Engine) -> None:
    async def again() -> None:
        engine.run(_where())

    with pytest.raises(ConcurrentUseError, match="another thread"):
        engine.run(again())


def test_soon_and_spawn_hand_over(engine: Engine) -> None:
    called = threading.Event()
    spawned = threading.Event()

    async def work() -> None:
        spawned.set()

    engine.soon(called.set)
    engine.spawn("work", work())
    assert called.wait(60)
    assert spawned.wait(60)


def test_closing_cancels_what_runs_and_refuses_what_comes(engine: Engine) -> None:
    cancelled = threading.Event()
    started = threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    engine.spawn("wait", wait())
    assert started.wait(60)
    engine.close()
    engine.close()
    assert cancelled.is_set()
    with pytest.raises(ClosedError, match="this tester is closed"):
        engine.run(_where())
    with pytest.raises(ClosedError):
        engine.soon(print)
    work = _where()
    with pytest.raises(ClosedError):
        engine.spawn("late", work)


def test_a_caller_that_waits_learns_of_the_close(engine: Engine) -> None:
    started = threading.Event()
    problems: list[BaseException] = []

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            engine.run(wait())
        except ClosedError as problem:
            problems.append(problem)

    caller = threading.Thread(target=call)
    caller.start()
    assert started.wait(60)
    engine.close()
    caller.join(60)
    assert len(problems) == 1


def test_a_callback_may_close_its_own_engine(engine: Engine) -> None:
    engine.soon(engine.close)
    engine._thread.join(60)
    assert not engine._thread.is_alive()


class _ClosedBetween(Engine):
    """Closed by another thread after a caller was let in and before it handed its work over."""

    def check_usable(self) -> None:
        super().check_usable()
        other = threading.Thread(target=self.close)
        other.start()
        other.join(60)


def test_what_is_handed_over_while_it_closes_is_refused() -> None:
    with pytest.raises(ClosedError):
        _ClosedBetween("tester").run(_where())
    with pytest.raises(ClosedError):
        _ClosedBetween("tester").soon(print)
    with pytest.raises(ClosedError):
        _ClosedBetween("tester").spawn("late", _where())


def test_work_that_starts_other_work_when_cancelled_is_ended_as_well(engine: Engine) -> None:
    cancelled = threading.Event()
    tasks: list[asyncio.Task[None]] = []

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tasks.append(asyncio.get_running_loop().create_task(other()))
            await asyncio.sleep(0)

    async def begin() -> None:
        tasks.append(asyncio.get_running_loop().create_task(wait()))
        await asyncio.sleep(0)

    engine.run(begin())
    engine.close()
    assert cancelled.is_set()


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_who_tries_to_end_the_program_on_the_engines_thread_ends_nothing(
    engine: Engine, end: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def leave() -> None:
        raise end

    engine.soon(leave)
    assert engine.run(_where()).name == "braidlog tester"
    assert f"{end.__name__}() was raised on the thread of this tester" in caplog.text


def test_nobody_waits_for_a_thread_that_died(engine: Engine) -> None:
    reported: list[ClosedError] = []
    engine.on_death.append(reported.append)
    waiting = engine.begin(asyncio.Event().wait())
    # What no callback can do: the loop itself is broken.
    engine.soon(setattr, engine.loop._selector, "select", None)  # type: ignore[attr-defined]
    problem = waiting.exception(30)
    assert isinstance(problem, ClosedError)
    assert "the thread of this tester ended" in str(problem)
    engine._thread.join(30)
    assert reported == [problem]
    with pytest.raises(ClosedError, match="the thread of this tester ended"):
        engine.run(_where())
    engine.close()


class _ChangingLock:
    """Somebody else had it, and took a socket away and gave it back, as the engine's thread wakes up."""

    def __init__(self, watched: socket.socket) -> None:
        self._watched = watched
        self.selector: selectors.BaseSelector | None = None

    def release(self) -> None: ...

    def acquire(self) -> None:
        assert self.selector is not None
        self.selector.unregister(self._watched)
        self.selector.register(self._watched, selectors.EVENT_READ, "new")


def test_news_of_a_reader_that_was_replaced_meanwhile_is_dropped() -> None:
    """The loop would remove the new reader for it, and the connection would never be read again."""
    ours, peer = socket.socketpair()
    with ours, peer:
        lock = _ChangingLock(ours)
        lock.selector = selector = _SleepingSelector(lock)  # type: ignore[arg-type]
        with selector:
            selector.register(ours, selectors.EVENT_READ, "old")
            peer.send(b"x")
            assert selector.select(5) == []
            lock.acquire = lambda: None  # type: ignore[method-assign]
            assert [key.data for key, _ in selector.select(5)] == ["new"]
