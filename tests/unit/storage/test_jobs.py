from __future__ import annotations

from collections.abc import Iterator

from braidlog.core.errors import StorageFault
from braidlog.storage.jobs import Finish, InlineExecutor, Work, run_inline


def test_inline_executor_keeps_exceptions_for_the_caller() -> None:
    def fail() -> None:
        raise ValueError("no")

    executor = InlineExecutor()
    assert executor.submit(lambda: 5).result() == 5
    assert isinstance(executor.submit(fail).exception(), ValueError)


def test_work_is_completed_before_the_next_is_asked_for() -> None:
    events: list[str] = []

    def act(name: str) -> Finish | None:
        events.append(f"act {name}")
        if name == "b":
            raise StorageFault("/d", "broken")
        return lambda: events.append(f"finish {name}")

    def job() -> Iterator[Work | None]:
        for name in "abc":
            events.append(f"decide {name}")
            yield Work("/d", name, lambda name=name: act(name))  # type: ignore[misc]
            yield None
        raise StorageFault("/e", "broken too")

    faults: list[str] = []
    assert run_inline(job(), lambda fault: faults.append(fault.directory)) == 3
    assert events == [
        "decide a", "act a", "finish a", "decide b", "act b", "decide c", "act c", "finish c",
    ]  # fmt: skip
    assert faults == ["/d", "/e"]
