"""Tells as JSON what every public class of the client library does: run compiled and uncompiled, it says the same.

For each class: its public names with their docstrings and parameters, and of an instance what it looks like, whether
it equals its copies, and what comes out of pickle and of another process.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import enum
import inspect
import json
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import braidlog
import braidlog.client.admin
import braidlog.errors
from braidlog.client.producer.accumulator.producer_batch import Guard, ProducerBatch
from braidlog.core.clock import SystemClock
from braidlog.core.types import TopicPartition

NOWHERE = "127.0.0.1:1"
PLACE = TopicPartition("orders", 1)
# Values for the parameters of errors, by name.
ERROR_ARGUMENTS: dict[str, object] = {
    "message": "it went wrong; try again",
    "partition": PLACE,
    "offset": 5,
    "position": 6,
    "diverging_offset": 4,
    "resume_at": 7,
    "record": braidlog.ConsumerRecord("orders", 1, 5, 1_700_000_000_000, b"k", b"v"),
}


def public_names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in (braidlog, braidlog.client.admin, braidlog.errors):
        found.update({name: getattr(module, name) for name in module.__all__})
    return dict(sorted(found.items()))


def instance_of(cls: type) -> object:
    if issubclass(cls, enum.Enum):
        return next(iter(cls))
    if issubclass(cls, BaseException):
        parameters = inspect.signature(cls.__init__).parameters
        arguments = {name: value for name, value in ERROR_ARGUMENTS.items() if name in parameters}
        return cls(**arguments) if arguments else cls(ERROR_ARGUMENTS["message"])
    if dataclasses.is_dataclass(cls):
        return cls(*(f"{field.name} 1" for field in dataclasses.fields(cls)))
    if hasattr(cls, "_fields"):
        return cls(*(f"{name} 1" for name in cls._fields))
    return SPECIAL[cls.__name__]()


SPECIAL: dict[str, Callable[[], object]] = {
    "ConsumerRecord": lambda: braidlog.ConsumerRecord(
        "orders", 1, 2**40, 1_700_000_000_000, b"k", {"a": [1]}, (("trace", b"1"), ("none", None)), 1, 7
    ),
    "Delivery": lambda: braidlog.Delivery(ProducerBatch("orders", 1, None, Guard(SystemClock()), None), 0, 5, -1, -1),
    "Results": lambda: braidlog.client.admin.Results({"a": 1, "b": braidlog.ProtocolError("refused")}),
    "TopicId": lambda: braidlog.client.admin.TopicId(bytes(range(16))),
    "RebalanceListener": braidlog.RebalanceListener,
}


def doubles(value: Any) -> Iterator[Any]:
    """What is made of it by copying and pickling."""
    yield copy.copy(value)
    yield copy.deepcopy(value)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(value, protocol))


def facts_of(value: Any) -> tuple[str, str, object]:
    """What makes one thing the same as another, for all that do not compare equal themselves."""
    return type(value).__name__, repr(value), attributes_of(value)


def attributes_of(value: Any) -> dict[str, str]:
    if isinstance(value, BaseException):
        return {"args": repr(value.args), **{name: repr(each) for name, each in sorted(vars(value).items())}}
    return {name: repr(getattr(value, name)) for name in names_of(type(value)) if not callable(getattr(value, name))}


def names_of(cls: type) -> list[str]:
    """The public names, without those of Python's own classes."""
    pythons = {name for base in cls.__mro__ if base.__module__ == "builtins" for name in dir(base)}
    return [name for name in dir(cls) if not name.startswith("_") and name not in pythons]


def told_of_class(cls: type) -> dict[str, object]:
    methods: dict[str, object] = {}
    for name in names_of(cls):
        method = getattr(cls, name)
        if inspect.isroutine(method):
            methods[name] = [inspect.getdoc(method), list(inspect.signature(method).parameters)]
    return {"doc": inspect.getdoc(cls), "names": names_of(cls), "methods": methods}


def told_of_value(value: Any, pool: ProcessPoolExecutor) -> dict[str, object]:
    made = [*doubles(value), pool.submit(copy.copy, value).result()]
    return {
        "repr": repr(value),
        "attributes": attributes_of(value),
        "same": all(facts_of(each) == facts_of(value) for each in made),
        "equal": all(each == value for each in made),
        "hashed": type(value).__hash__ is not None and is_hashed_alike(value, made[1]),
    }


def is_hashed_alike(value: Any, double: Any) -> bool:
    try:
        return hash(value) == hash(double)
    except TypeError:
        return False


def told_of_client(client: object) -> dict[str, object]:
    """What cannot be copied says so."""
    refusals = []
    for double in (copy.copy, copy.deepcopy, pickle.dumps):
        try:
            double(client)
        except TypeError as problem:
            refusals.append(str(problem))
    return {"repr": repr(client), "refusals": refusals}


async def told_of_clients() -> dict[str, object]:
    secret = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "ann"}
    settings: Any = {"bootstrap_servers": NOWHERE, "sasl_password": "hush", **secret}
    producer, admin = braidlog.Producer(**settings), braidlog.Admin(**settings)
    consumer = braidlog.Consumer(**settings, group_id="shop", enable_auto_commit=False)
    waiting = braidlog.AsyncConsumer(**settings)
    parallel = braidlog.ParallelConsumer(consumer, print)
    clients = (producer, admin, consumer, waiting, parallel, instance_of(braidlog.Delivery))
    reported = {type(each).__name__: told_of_client(each) for each in clients}
    await waiting.close()
    for each in (producer, admin, consumer):
        each.close()
        reported[f"{type(each).__name__}, closed"] = {"repr": repr(each)}
    return reported


def main() -> None:
    classes = {name: each for name, each in public_names().items() if isinstance(each, type)}
    values = {name: instance_of(cls) for name, cls in classes.items() if name not in CLIENTS}
    values |= {name: each for name, each in public_names().items() if not isinstance(each, type)}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        reported = {
            "classes": {name: told_of_class(cls) for name, cls in classes.items()},
            "values": {name: told_of_value(value, pool) for name, value in values.items()},
            "clients": asyncio.run(told_of_clients()),
            "compiled": not braidlog.client.consumer.record.__file__.endswith(".py"),
        }
    print(json.dumps(reported))


CLIENTS = ("Admin", "AsyncConsumer", "Consumer", "Delivery", "ParallelConsumer", "Producer")

if __name__ == "__main__":
    main()
