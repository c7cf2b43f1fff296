"""A lone thing where many are meant: `create_topics("abc")` must not make topics a, b and c."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from braidlog import Admin, AsyncConsumer, Consumer, TopicPartition
from braidlog.client.admin import ConfigResource, NewTopic, ResourceType, TopicId
from braidlog.client.arguments import by_partition, listed, names_of, partition_of, partitions_of
from braidlog.client.errors import ArgumentError
from braidlog.core.errors import UserError

NOWHERE = {"bootstrap_servers": "127.0.0.1:1", "default_api_timeout": 0.2}
# A string is a topic, or a pattern, as the docs say.
TAKES_A_STRING = {"subscribe"}


def public_methods(owner: type) -> dict[str, Callable[..., Any]]:
    return {
        name: method
        for name, method in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_") and name not in TAKES_A_STRING
    }


def parameters_of(owner: type, pattern: str) -> list[tuple[str, str]]:
    """(method, parameter) for every annotation that begins so."""
    return [
        (name, parameter.name)
        for name, method in public_methods(owner).items()
        for parameter in inspect.signature(method).parameters.values()
        if re.match(pattern, str(parameter.annotation))
    ]


def refusal_of(client: object, method: str, parameter: str, value: object) -> ArgumentError:
    signature = inspect.signature(getattr(client, method))
    arguments = {
        name: "x"
        for name, each in signature.parameters.items()
        if each.default is inspect.Parameter.empty and name != parameter
    }
    with pytest.raises(ArgumentError) as caught:
        getattr(client, method)(**arguments, **{parameter: value})
    return caught.value


@pytest.mark.parametrize(("method", "parameter"), parameters_of(Admin, r"Many\[|Partitions"))
def test_admin_refuses_a_string_for_a_list(method: str, parameter: str) -> None:
    with Admin(**NOWHERE) as admin:  # type: ignore[arg-type]
        problem = refusal_of(admin, method, parameter, "abc")
    assert str(problem) == f"{parameter}='abc' is not a list; write {parameter}=['abc']"


@pytest.mark.parametrize(("method", "parameter"), parameters_of(Admin, r"(ByPartition|Mapping)\["))
def test_admin_refuses_a_list_for_a_mapping(method: str, parameter: str) -> None:
    with Admin(**NOWHERE) as admin:  # type: ignore[arg-type]
        problem = refusal_of(admin, method, parameter, ["abc"])
    assert f"{parameter}=['abc'] is not a mapping; give a dict such as {{" in str(problem)


@pytest.mark.parametrize(("method", "parameter"), parameters_of(Consumer, "Many|Partitions"))
def test_consumer_refuses_a_string_for_a_list(method: str, parameter: str) -> None:
    with Consumer(**NOWHERE, group_id="g") as consumer:  # type: ignore[arg-type]
        problem = refusal_of(consumer, method, parameter, "abc")
    assert f"write {parameter}=['abc']" in str(problem)


def test_the_async_consumer_refuses_it_too() -> None:
    async def program() -> None:
        async with AsyncConsumer(**NOWHERE, group_id="g") as consumer:  # type: ignore[arg-type]
            with pytest.raises(ArgumentError, match=r"write partitions=\['abc'\]"):
                await consumer.assign("abc")  # type: ignore[arg-type]

    asyncio.run(program())


@pytest.mark.parametrize("owner", [Admin, Consumer, AsyncConsumer])
def test_no_call_leaves_it_open_whether_a_string_is_a_list(owner: type) -> None:
    assert parameters_of(owner, r"(typing\.)?(Iterable|Sequence|Collection)\[") == []
    assert "create_topics" in public_methods(Admin)


@pytest.mark.parametrize(
    "lone",
    ["abc", b"abc", TopicId(bytes(16)), NewTopic("abc"), ConfigResource(ResourceType.TOPIC, "abc"), 7, None],
)
def test_a_lone_thing_is_no_list(lone: Any) -> None:
    with pytest.raises(ArgumentError, match=re.escape(f"write things=[{lone!r}]")):
        listed(lone, "things")


def test_what_a_list_is() -> None:
    for many in (["a", "b"], ("a", "b"), {"a": 1, "b": 2}, (each for each in "ab"), {"a": 1, "b": 2}.keys()):
        assert names_of(many, "names") == ["a", "b"]
    with pytest.raises(ArgumentError, match="names: 7 is no name"):
        names_of(["a", 7], "names")  # type: ignore[list-item]


def test_partitions() -> None:
    here = TopicPartition("ab", 1)
    assert partitions_of([here, ("c", 2)]) == [here, TopicPartition("c", 2)]
    assert by_partition({("ab", 1): 5}, "at", "{}") == {here: 5}
    with pytest.raises(ArgumentError, match=re.escape("write partitions=[TopicPartition(topic='ab', partition=1)]")):
        partitions_of(here)  # type: ignore[arg-type]
    for wrong in ("ab", ("ab",), ("ab", "1"), ("", 1), ("ab", -1), (1, "ab"), 5):
        with pytest.raises(ArgumentError, match="is no partition; give TopicPartition"):
            partition_of(wrong)  # type: ignore[arg-type]
    # A pair where a list of pairs is meant.
    with pytest.raises(ArgumentError, match="'ab' is no partition"):
        partitions_of(("ab", 1))  # type: ignore[arg-type]


def test_it_can_be_caught_as_either() -> None:
    assert issubclass(ArgumentError, UserError)
    assert issubclass(ArgumentError, TypeError)
