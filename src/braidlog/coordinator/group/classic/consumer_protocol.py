"""What the members of a consumer group read, out of bytes that only they need to understand."""

from __future__ import annotations

from collections.abc import Iterable

from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.consumer_protocol import ConsumerProtocolSubscription
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version

NEWEST = 3


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None if one of them cannot be understood."""
    topics: set[str] = set()
    for content in metadata:
        try:
            if read_version_prefix(content) < 0:
                return None
            # The first field in every version; what follows it is not always what the version promises.
            topics.update(reader_after_version(content).strings(False))
        except MalformedError:
            return None
    return frozenset(topics)


def parse_subscription(content: bytes) -> ConsumerProtocolSubscription | None:
    """
    ```
    version       int16    newer than known: read as the newest known, the rest is for others
    subscription  ConsumerProtocolSubscription in that version
    ```
    """
    try:
        version = read_version_prefix(content)
        if version < 0:
            return None
        return ConsumerProtocolSubscription.decode(reader_after_version(content), min(version, NEWEST))
    except MalformedError:
        return None
