"""Arguments that are many things: a string, which Python takes for a list of its letters, is never meant by them.

`Many` is what a type checker demands of a program: a list, tuple, set, mapping or generator, but no string. The
functions check the same in programs without a type checker, and say what to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from braidlog.client.errors import ArgumentError
from braidlog.core.types import TopicPartition

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Key = TypeVar("Key")
Value = TypeVar("Value")


class Listed(Protocol[T_co]):
    """A collection; not a string, of which only strings can be asked whether they are in it."""

    def __contains__(self, item: object, /) -> bool: ...
    def __iter__(self) -> Iterator[T_co]: ...
    def __len__(self) -> int: ...


Many: TypeAlias = Listed[T] | Iterator[T]
# A pair of topic and number will do for a partition, which types cannot say of the keys of a mapping.
ByPartition: TypeAlias = Mapping[TopicPartition, T]
Partitions: TypeAlias = Many[TopicPartition] | Many[tuple[str, int]] | Many[TopicPartition | tuple[str, int]]


def listed(given: Many[T], argument: str) -> list[T]:
    """The things that were given; raises for a lone one, also where Python could take its parts for them."""
    lone: object = given
    if isinstance(lone, str | bytes) or hasattr(lone, "_fields") or not isinstance(lone, Iterable):
        raise ArgumentError(f"{argument}={given!r} is not a list; write {argument}=[{given!r}]")
    return list(given)


def names_of(given: Many[str], argument: str) -> list[str]:
    """Names of topics, groups, users; raises for what is none."""
    names = listed(given, argument)
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"{argument}: {name!r} is no name; give text")
    return names


def partitions_of(given: Partitions, argument: str = "partitions") -> list[TopicPartition]:
    """Partitions as they are, or as pairs of topic and number; raises for a lone one, and for what is none."""
    return [partition_of(each) for each in listed(given, argument)]


def partition_of(given: TopicPartition | tuple[str, int]) -> TopicPartition:
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and topic.strip() and isinstance(number, int) and number >= 0:
            return TopicPartition(topic, number)
    raise ArgumentError(f"{given!r} is no partition; give TopicPartition(topic, number)")


def mapped(given: Mapping[Key, Value], argument: str, example: str) -> Mapping[Key, Value]:
    """The mapping that was given; raises for anything else."""
    if not isinstance(given, Mapping):
        raise ArgumentError(f"{argument}={given!r} is not a mapping; give a dict such as {example}")
    return given


def by_partition(given: ByPartition[Value], argument: str, example: str) -> dict[TopicPartition, Value]:
    """A mapping from partitions."""
    whole: Mapping[Any, Value] = mapped(given, argument, example)
    return {partition_of(each): value for each, value in whole.items()}
