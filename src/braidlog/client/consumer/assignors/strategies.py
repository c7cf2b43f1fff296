"""Turns `partition.assignment.strategy` into assignors: by name, by the Java class's name, or by an instance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from braidlog.client.consumer.assignors.interface import Assignor
from braidlog.client.consumer.assignors.range import RangeAssignor
from braidlog.client.consumer.assignors.round_robin import RoundRobinAssignor
from braidlog.client.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from braidlog.client.errors import SettingError

_KEY: Final = "partition.assignment.strategy"
_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_KNOWN: Final[dict[str, Callable[[], Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
    f"{_PACKAGE}RangeAssignor": RangeAssignor,
    f"{_PACKAGE}RoundRobinAssignor": RoundRobinAssignor,
    f"{_PACKAGE}StickyAssignor": StickyAssignor,
    f"{_PACKAGE}CooperativeStickyAssignor": CooperativeStickyAssignor,
}


def assignors_of(strategies: str | Assignor | type[Assignor] | Iterable[Any]) -> list[Assignor]:
    """In order of preference; raises SettingError for what is no assignor, and for two of one name."""
    if isinstance(strategies, str):
        strategies = [each.strip() for each in strategies.split(",") if each.strip()]
    elif isinstance(strategies, (Assignor, type)):
        strategies = [strategies]
    chosen = [_assignor(each) for each in strategies]
    if not chosen:
        raise SettingError(f"{_KEY} is empty: name at least one of range, roundrobin, sticky, cooperative-sticky")
    names = [assignor.name for assignor in chosen]
    for assignor in chosen:
        if not assignor.name:
            raise SettingError(f"{_KEY}: {type(assignor).__name__} has no name for members to find each other by")
        if names.count(assignor.name) > 1:
            raise SettingError(f"{_KEY} has two assignors of the name {assignor.name}")
    return chosen


def all_cooperative(assignors: Iterable[Assignor]) -> bool:
    """Whether members keep what they have while they rebalance: only if no assignor is offered that cannot do it."""
    return all(assignor.cooperative for assignor in assignors)


def _assignor(given: object) -> Assignor:
    if isinstance(given, Assignor):
        return given
    if isinstance(given, type) and issubclass(given, Assignor):
        return given()
    if isinstance(given, str) and given in _KNOWN:
        return _KNOWN[given]()
    raise SettingError(
        f"{_KEY}: {given!r} is no assignor: use range, roundrobin, sticky, cooperative-sticky, or an instance of a"
        " class that derives from Assignor"
    )


def is_builtin(assignor: Assignor) -> bool:
    """Whether it may run on any thread, since no program's code is in it."""
    return type(assignor) in _KNOWN.values()
