"""A committed offset, and the record that it is written down in.

```
key    version    int16     1 (0 in very old logs, laid out alike)
       group      string
       topic      string
       partition  int32

value  version    int16     3; 1 where the client itself said how long to keep the offset
       offset     int64
       epoch      int32     of the leader that the client read from, -1 if it did not say; from version 3 on
       metadata   string    compact in version 4
       committed  int64     milliseconds
       expires    int64     milliseconds, -1 for the broker's own retention; in version 1 alone
       tags                 in version 4 alone
```

A value of null deletes the offset.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.group_records import OffsetCommitKey, OffsetCommitValue
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version, version_prefixed_bytes

KEY_VERSION: Final = 1
VALUE_VERSION: Final = 3
# The last layout that has room for an expiry.
EXPIRING_VALUE_VERSION: Final = 1
LATEST_VALUE_VERSION: Final = 4

NO_EXPIRY: Final = -1


class OffsetAndMetadata(NamedTuple):
    """A tuple, since there may be very many."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    # NO_EXPIRY unless the client asked for a retention of its own (versions 2 to 4 of OffsetCommit).
    expire_timestamp_ms: int
    # Of the commit's record in the log: what a transaction wrote earlier must not win over what was written later.
    record_offset: int


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return version_prefixed_bytes(OffsetCommitKey(group=group_id, topic=topic, partition=partition), KEY_VERSION)


def offset_value(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int, expire_timestamp_ms: int
) -> bytes:
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp_ms,
        expire_timestamp=expire_timestamp_ms,
    )
    return version_prefixed_bytes(value, VALUE_VERSION if expire_timestamp_ms == NO_EXPIRY else EXPIRING_VALUE_VERSION)


def read_offset_value(content: bytes, record_offset: int) -> OffsetAndMetadata:
    version = read_version_prefix(content)
    if not 0 <= version <= LATEST_VALUE_VERSION:
        raise MalformedError(f"a committed offset in the unknown layout {version}")
    value = OffsetCommitValue.decode(reader_after_version(content), version)
    return OffsetAndMetadata(
        int(value.offset),
        int(value.leader_epoch),
        value.metadata,
        int(value.commit_timestamp),
        int(value.expire_timestamp),
        record_offset,
    )


def text_units(text: str) -> int:
    """How long Java says the text is; the limit on metadata is in these, whatever the setting's name says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2
