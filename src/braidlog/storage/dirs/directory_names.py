"""Names of partition directories, and what their endings say.

orders-3                                            the partition's log
orders-3.0af1…(32 hex digits)-delete                removed soon
orders-3.0af1…-future                               a copy that will take its place (AlterReplicaLogDirs)
orders-3.0af1…-stray                                set aside: the cluster does not know this replica
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from braidlog.core.ids import random_id
from braidlog.core.types import TopicPartition

LONGEST_NAME: Final = 255
_MARKED: Final = re.compile(r"(?P<topic>\S+)-(?P<partition>\d+)\.(?P<id>[0-9a-z]+)-(?P<kind>delete|future|stray)")
_PLAIN: Final = re.compile(r"(?P<topic>\S+)-(?P<partition>\d+)")
# KRaft's own log lies among the topics' but is not one of them.
_NOT_TOPICS: Final = frozenset({"__cluster_metadata-0", "remote-log-index-cache"})


class DirectoryKind(Enum):
    CURRENT = ""
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


class PartitionDirectory(NamedTuple):
    partition: TopicPartition
    kind: DirectoryKind


def parse_directory_name(name: str) -> PartitionDirectory | None:
    """Which partition a directory holds and in which role; none if it is no partition directory."""
    if name in _NOT_TOPICS:
        return None
    kind = DirectoryKind.CURRENT
    match = _MARKED.fullmatch(name)
    if match is not None:
        kind = DirectoryKind(match["kind"])
    else:
        match = _PLAIN.fullmatch(name)
    if match is None:
        return None
    return PartitionDirectory(TopicPartition(match["topic"], int(match["partition"])), kind)


def marked_name(partition: TopicPartition, kind: DirectoryKind, new_id: Callable[[], bytes] = random_id) -> str:
    """A fresh name for a directory in this role, the topic cut short where file systems would refuse the whole."""
    if kind is DirectoryKind.CURRENT:
        return str(partition)
    suffix = f"-{partition.partition}.{new_id().hex()}-{kind.value}"
    # A future directory is renamed to the plain name, so its topic must stay whole to be parsed back.
    topic = partition.topic if kind is DirectoryKind.FUTURE else partition.topic[: LONGEST_NAME - len(suffix)]
    return topic + suffix
