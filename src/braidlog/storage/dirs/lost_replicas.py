"""`lost-replicas`: the replicas that the cluster counted on when a data directory was formatted for this broker.

    orders 0 Mk3OEYBSD34fcwNTJENDMg      topic, partition, topic id

This is the format's first version, which does not name itself: a later one begins with a line `version 2`.

Formatting a directory means that it is new, or that another disk took the place of one that had these replicas in sync.
The file is written before `meta.properties`, so that no later start can take the directory for one that never had
them. A replica that has a log is not lost, whatever the file says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from braidlog.core.errors import CorruptLogError, NewerFormatError
from braidlog.core.ids import id_text, parse_id
from braidlog.core.types import TopicPartition

FILE_NAME: Final = "lost-replicas"


class LostReplica(NamedTuple):
    partition: TopicPartition
    # ZERO_ID where an older controller knows of none.
    topic_id: bytes


def encode_lost_replicas(replicas: Iterable[LostReplica]) -> str:
    return "".join(f"{each.partition.topic} {each.partition.partition} {id_text(each.topic_id)}\n" for each in replicas)


def decode_lost_replicas(text: str, path: str) -> list[LostReplica]:
    found: list[LostReplica] = []
    lines = text.splitlines()
    first = lines[0].split() if lines else []
    if len(first) == 2 and first[0] == "version":
        raise NewerFormatError(path, first[1], "1")
    for number, line in enumerate(lines, 1):
        try:
            topic, partition, topic_id = line.split()
            found.append(LostReplica(TopicPartition(topic, int(partition)), parse_id(topic_id)))
        except ValueError:
            raise CorruptLogError(f"{path} line {number}: {line!r} is not 'topic partition topic-id'") from None
    return found
