"""What the two kinds of broker under test, a thread and a process, have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

# What a test wants of a broker of its own. A test that asks for something else is given that.
TEST_SETTINGS: Final[Mapping[str, str]] = {
    # No fixed port: brokers of several test runs share the machine.
    "braidlog.http.listen": "",
    # The first members of a group need not wait for others.
    "group.initial.rebalance.delay.ms": "0",
    # One broker has no use for fifty partitions each, which take time to create.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # The files of a deleted topic go soon.
    "log.segment.delete.delay.ms": "1000",
}


class BrokerInstance(Protocol):
    """One life of a broker, from start to stop."""

    @property
    def pid(self) -> int: ...

    @property
    def is_running(self) -> bool: ...

    def start(self, settings: Mapping[str, str]) -> int:
        """Returns the port when clients are served; raises BrokerFailed, with nothing left behind."""
        ...

    def stop(self) -> None:
        """A clean stop; raises BrokerFailed if it was not."""
        ...

    def kill(self) -> None:
        """A crash: nothing is flushed, nothing is said to clients."""
        ...

    def log(self, last: int) -> str:
        """The last lines of its log."""
        ...
