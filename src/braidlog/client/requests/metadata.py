"""Metadata: the brokers of a cluster, and where the partitions of topics are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic

METADATA: Final = 3
# The first version that can tell which operations are allowed on a topic.
_WITH_OPERATIONS: Final = 8


def metadata_request(topics: Iterable[str] | None, *, create_topics: bool) -> MetadataRequest:
    """Of topics by name, or of all (None); brokers of before 0.11 only know `create_topics`."""
    named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=named, allow_auto_topic_creation=create_topics)


def describe_topics_request(
    version: int, topics: Iterable[str | bytes], *, authorized_operations: bool
) -> MetadataRequest:
    """Of topics by name, or by id; a broker answers a request that mixes both by the ids alone."""
    return MetadataRequest(
        topics=[
            MetadataRequestTopic(name=each)
            if isinstance(each, str)
            else MetadataRequestTopic(topic_id=bytes(each), name=None)
            for each in topics
        ],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=authorized_operations and version >= _WITH_OPERATIONS,
    )
