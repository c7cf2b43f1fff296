"""Throttles of moves (KIP-73): which replicas are named in topics' settings, the rates of brokers, and their removal.

    topics    leader.replication.throttled.replicas     0:1,0:2    partition 0 while broker 1 or 2 leads it
              follower.replication.throttled.replicas   0:3        partition 0 while broker 3 copies it
    brokers   leader.replication.throttled.rate, follower.replication.throttled.rate

What names a partition that is not being moved is left over from a move that is done. `*` is somebody else's, and stays.
Rates go before lists: who finds lists knows that there is still something to take away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from braidlog.cli.output import remark, remark_failure
from braidlog.cli.reassignment.moves import Move
from braidlog.client.admin.admin import Admin
from braidlog.client.admin.configs import ConfigResource, ConfigSource

LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_ALL: Final = "*"

# By topic, by the name of the setting.
Lists = dict[str, dict[str, str]]


def wanted_lists(moves: Iterable[Move]) -> dict[str, dict[str, list[str]]]:
    """What to name: as leaders all brokers that may lead meanwhile, as followers those that copy."""
    lists: dict[str, dict[str, list[str]]] = {}
    for move in moves:
        if move.adding:
            number = move.partition.partition
            of_topic = lists.setdefault(move.partition.topic, {LEADERS: [], FOLLOWERS: []})
            of_topic[LEADERS] += [f"{number}:{broker}" for broker in move.before]
            of_topic[FOLLOWERS] += [f"{number}:{broker}" for broker in move.adding]
    return lists


def merged(existing: str, added: Iterable[str]) -> str:
    """A list with more pairs; `*` names all of them already."""
    pairs = _pairs(existing)
    return _ALL if _ALL in pairs else ",".join(dict.fromkeys([*pairs, *added]))


def left_over(existing: str, moving: Collection[int]) -> str:
    """A list without the pairs of partitions that are not being moved."""
    return ",".join(each for each in _pairs(existing) if each == _ALL or _partition(each) in moving)


def _pairs(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _partition(pair: str) -> int:
    number = pair.partition(":")[0]
    return int(number) if number.isdecimal() else -1


def involved_brokers(moves: Iterable[Move]) -> set[int]:
    return {broker for move in moves if move.adding for broker in (*move.before, *move.after)}


def set_throttle(admin: Admin, moves: Sequence[Move], rate: int, alive: Collection[int]) -> None:
    """Before moves are asked for. Brokers that are down cannot be told, and copy nothing."""
    wanted = wanted_lists(moves)
    existing = read_lists(admin, wanted)
    lists = {
        ConfigResource.topic(topic): {
            name: merged(existing[topic].get(name, ""), pairs) for name, pairs in each.items()
        }
        for topic, each in wanted.items()
        if topic in existing
    }
    set_rate(admin, involved_brokers(moves).intersection(alive), rate)
    if lists:
        admin.alter_configs(lists).raise_for_errors()


def set_rate(admin: Admin, brokers: Collection[int], rate: int) -> None:
    if brokers:
        rates = dict.fromkeys(RATES, str(rate))
        admin.alter_configs({ConfigResource.broker(each): rates for each in sorted(brokers)}).raise_for_errors()


def read_lists(admin: Admin, topics: Iterable[str]) -> Lists:
    """The lists of throttled replicas that topics have; of topics that are gone there are none."""
    asked = [ConfigResource.topic(each) for each in sorted(topics)]
    if not asked:
        return {}
    described = admin.describe_configs(asked, names=[LEADERS, FOLLOWERS], synonyms=False).succeeded
    return {
        resource.name: {
            name: entry.value or "" for name, entry in entries.items() if entry.source == ConfigSource.DYNAMIC_TOPIC
        }
        for resource, entries in described.items()
    }


def take_off(admin: Admin) -> bool:
    """Take away whatever is left over of moves that are done; whether there was something.

    The rates of brokers go with the last list.
    """
    topics = [each.name for each in admin.list_topics()]
    existing = {topic: lists for topic, lists in read_lists(admin, topics).items() if any(lists.values())}
    moving: dict[str, set[int]] = {}
    for each in admin.list_partition_reassignments():
        moving.setdefault(each.topic, set()).add(each.partition)
    kept: Lists = {
        topic: {name: left_over(text, moving.get(topic, set())) for name, text in lists.items()}
        for topic, lists in existing.items()
    }
    changes: dict[ConfigResource, Mapping[str, str | None]] = {
        ConfigResource.topic(topic): {name: lists[name] or None for name in lists}
        for topic, lists in kept.items()
        if lists != existing[topic]
    }
    taken = False
    if not moving and not any(text for lists in kept.values() for text in lists.values()):
        taken = _take_rates_off(admin)
    if changes:
        admin.alter_configs(changes).raise_for_errors()
    return taken or bool(changes)


def _take_rates_off(admin: Admin) -> bool:
    brokers = [ConfigResource.broker(each.broker_id) for each in admin.describe_cluster().brokers]
    described = admin.describe_configs(brokers, names=RATES, synonyms=False)
    for problem in described.errors.values():
        remark_failure(problem)
    changes: dict[ConfigResource, Mapping[str, str | None]] = {}
    for resource, entries in described.succeeded.items():
        own = [name for name, entry in entries.items() if entry.source == ConfigSource.DYNAMIC_BROKER]
        if own:
            changes[resource] = dict.fromkeys(own)
    refused = admin.alter_configs(changes).errors if changes else {}
    for resource, problem in refused.items():
        remark_failure(problem)
        remark(f"{resource} keeps its throttle: run `braidlog reassign verify` once it answers")
    return bool(changes)
