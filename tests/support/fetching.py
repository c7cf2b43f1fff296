"""A fetch request in any version: by name until 12, by topic id from 13 on."""

from __future__ import annotations

from typing import Any

from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from support.oracle import Pair, Side


def fetch_request(
    side: Side,
    version: int,
    topic: str | None,
    offset: int,
    *,
    partition: int = 0,
    topic_id: bytes | None = None,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    session_epoch: int = -1,
    **fields: Any,
) -> FetchRequest:
    """One partition (or, in a session, none) that answers at once with what there is."""
    topics = []
    if topic is not None:
        here = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        if version >= 9:
            here.current_leader_epoch = current_leader_epoch
        wanted = FetchTopic(partitions=[here])
        if version >= 13:
            wanted.topic_id = topic_id if topic_id is not None else side.topic_ids[topic]
        else:
            wanted.topic = topic
        topics.append(wanted)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics, **fields)
    if version >= 7:
        request.session_epoch = session_epoch
    return request


def compare_fetch(pair: Pair, version: int, topic: str, offset: int, **fields: Any) -> Any:
    """Both sides' answers to this fetch are alike, record bytes included."""
    what = f"at {offset} {fields}"
    return pair.compare("Fetch", version, lambda side: fetch_request(side, version, topic, offset, **fields), what)
