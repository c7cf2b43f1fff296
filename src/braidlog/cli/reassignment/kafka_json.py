"""Plans in the file format of kafka-reassign-partitions.

{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

_VERSION: Final = 1
ANY: Final = "any"


@dataclass(frozen=True, slots=True)
class FilePlan:
    replicas: Mapping[TopicPartition, tuple[int, ...]]
    # Of replicas that are to lie in a directory of their broker's, by partition and broker.
    log_dirs: Mapping[tuple[TopicPartition, int], str] = field(default_factory=dict)


def plan_text(replicas: Mapping[TopicPartition, tuple[int, ...]]) -> str:
    document = {
        "version": _VERSION,
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "replicas": list(brokers),
                "log_dirs": [ANY] * len(brokers),
            }
            for each, brokers in sorted(replicas.items())
        ],
    }
    return json.dumps(document, ensure_ascii=False)


def parse_plan(text: str, where: str) -> FilePlan:
    """Raises UserError that says what is wrong, and in which entry."""
    try:
        document = json.loads(text)
    except ValueError as problem:
        raise UserError(f"{where} is no JSON: {problem}") from problem
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise UserError(f'{where} is no plan: give {{"version": 1, "partitions": [{{"topic": …}}, …]}}')
    if document.get("version", _VERSION) != _VERSION:
        raise UserError(f"{where} is of version {document['version']!r}, and only {_VERSION} is known")
    replicas: dict[TopicPartition, tuple[int, ...]] = {}
    log_dirs: dict[tuple[TopicPartition, int], str] = {}
    for number, entry in enumerate(entries, 1):
        at = f"{where}, entry {number}"
        partition, brokers = _entry(entry, at)
        if partition in replicas:
            raise UserError(f"{at}: {partition} is there twice")
        replicas[partition] = brokers
        for broker, path in zip(brokers, _directories(entry, brokers, at), strict=True):
            if path != ANY:
                log_dirs[partition, broker] = path
    if not replicas:
        raise UserError(f"{where} has no partitions")
    return FilePlan(replicas, log_dirs)


def _entry(entry: Any, at: str) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise UserError(f"{at} is no object with topic, partition and replicas")
    topic: Any = entry.get("topic")
    number: Any = entry.get("partition")
    replicas: Any = entry.get("replicas")
    if not isinstance(topic, str) or not topic:
        raise UserError(f"{at} has no topic")
    if not _is_number(number):
        raise UserError(f"{at} has no partition: a whole number from 0")
    if not isinstance(replicas, list) or not replicas or not all(map(_is_number, replicas)):
        raise UserError(f"{at} has no replicas: a list of broker ids")
    if len(set(replicas)) != len(replicas):
        raise UserError(f"{at} names a broker twice: {replicas}")
    return TopicPartition(topic, int(number)), tuple(replicas)


def _directories(entry: dict[str, Any], brokers: tuple[int, ...], at: str) -> list[str]:
    found = entry.get("log_dirs") or [ANY] * len(brokers)
    if not isinstance(found, list) or len(found) != len(brokers) or not all(isinstance(each, str) for each in found):
        raise UserError(f'{at}: log_dirs names a directory for each replica, or "any"')
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
