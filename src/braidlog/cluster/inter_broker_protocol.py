"""inter.broker.protocol.version: which versions of requests brokers send to each other, at most.

A cluster that is upgraded broker by broker keeps the oldest one's version on all of them until the last is new. What a
peer speaks is known from its ApiVersions anyway; the setting says what may be sent before that. The steps are those of
Apache Kafka 3.9, from 2.8 on: an older version counts as 2.8.

                        2.8    3.0    3.1    3.2    3.4    3.5    3.7    3.9
Fetch                    12            13                   15     16     17
ListOffsets               6      7                           8             9
OffsetForLeaderEpoch      4
LeaderAndIsr              5                    6      7
UpdateMetadata            7                           8
StopReplica               3                           4
WriteTxnMarkers           1
ControlledShutdown        3
AllocateProducerIds       -      0

Records of `__consumer_offsets` are the same in all of them, and those of `__transaction_state` follow the feature
transaction.version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from braidlog.config.message_format import ProtocolVersion, parse_protocol_version
from braidlog.wire.generated.api_keys import ApiKey

NOT_SENT: Final = -1

_V = ProtocolVersion
_OLDEST: Final = _V(2, 8, 0)
# By api the versions and from where on each is sent, newest first.
_STEPS: Final[Mapping[ApiKey, tuple[tuple[ProtocolVersion, int], ...]]] = {
    ApiKey.FETCH: (
        (_V(3, 9, 0), 17),
        (_V(3, 7, 4), 16),
        (_V(3, 5, 1), 15),
        (_V(3, 5, 0), 14),
        (_V(3, 1, 0), 13),
        (_OLDEST, 12),
    ),
    ApiKey.LIST_OFFSETS: ((_V(3, 9, 0), 9), (_V(3, 5, 0), 8), (_V(3, 0, 1), 7), (_OLDEST, 6)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ((_OLDEST, 4),),
    ApiKey.LEADER_AND_ISR: ((_V(3, 4, 0), 7), (_V(3, 2, 0), 6), (_V(2, 8, 1), 5), (_OLDEST, 4)),
    ApiKey.UPDATE_METADATA: ((_V(3, 4, 0), 8), (_V(2, 8, 1), 7), (_OLDEST, 6)),
    ApiKey.STOP_REPLICA: ((_V(3, 4, 0), 4), (_OLDEST, 3)),
    ApiKey.WRITE_TXN_MARKERS: ((_OLDEST, 1),),
    ApiKey.CONTROLLED_SHUTDOWN: ((_OLDEST, 3),),
    # Before, each broker takes its producer ids from the store.
    ApiKey.ALLOCATE_PRODUCER_IDS: ((_V(3, 0, 0), 0), (_OLDEST, NOT_SENT)),
}


def feature_record_version(setting: str) -> int:
    """Of `/feature` where this broker is the one that makes it: Kafka reads 2 from 3.3 on."""
    return 2 if parse_protocol_version(setting) >= _V(3, 3, 0) else 1


def newest_versions(setting: str) -> dict[int, int]:
    """By api the newest version that is sent to other brokers; NOT_SENT for what is not asked of them at all."""
    version = max(parse_protocol_version(setting), _OLDEST)
    return {int(api): next(newest for since, newest in steps if version >= since) for api, steps in _STEPS.items()}
