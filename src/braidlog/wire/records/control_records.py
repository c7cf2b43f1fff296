"""Control records: what the log says to brokers and readers instead of to programs (hot: compiled by mypyc).

key:    version i16, type i16 (0 abort, 1 commit, 2 leader change, 3 snapshot header, 4 snapshot footer)
value:  of the first two, which end a transaction: version i16, coordinator epoch i32
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from braidlog.core.protocol_errors import InvalidRecordError
from braidlog.wire.records.batch import BatchHeader
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record, read_batch

ABORT: Final = 0
COMMIT: Final = 1
CONTROL_TYPE_NAMES: Final = {0: "abort", 1: "commit", 2: "leader change", 3: "snapshot header", 4: "snapshot footer"}

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")


class EndTxnMarker:
    """The end of a transaction."""

    __slots__ = ("commits", "coordinator_epoch")

    def __init__(self, commits: bool, coordinator_epoch: int) -> None:
        self.commits = commits
        self.coordinator_epoch = coordinator_epoch


def control_type(record: Record) -> int:
    """ABORT, COMMIT or another type, of a record out of a control batch."""
    if record.key is None or len(record.key) < _KEY.size:
        raise InvalidRecordError("a control record's key is shorter than its version and type")
    version, kind = _KEY.unpack_from(record.key)
    if version < 0:
        raise InvalidRecordError(f"a control record has the impossible version {version}")
    return int(kind)


def control_type_of_key(key: bytes | None) -> int:
    """The type that a key from a log says, -1 where it is no control record's: not refused, unlike `control_type`."""
    return int(_KEY.unpack_from(key)[1]) if key is not None and len(key) >= _KEY.size else -1


def end_txn_marker(record: Record) -> EndTxnMarker | None:
    """None where the record ends no transaction."""
    kind = control_type_of_key(record.key)
    value = record.value
    if kind not in (ABORT, COMMIT) or value is None or len(value) < _VALUE.size:
        return None
    return EndTxnMarker(kind == COMMIT, int(_VALUE.unpack_from(value)[1]))


def read_end_txn_marker(buffer: bytes, header: BatchHeader) -> EndTxnMarker | None:
    """The marker in the control batch at `header.position` of `buffer`.

    None for a batch that the cleaner has emptied, and for control records that end no transaction.
    """
    for record in read_batch(buffer, header, check_crc=False):
        marker = end_txn_marker(record)
        if marker is not None:
            return marker
    return None


def build_end_txn_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    coordinator_epoch: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a transaction."""
    record = Record(
        timestamp=timestamp,
        key=_KEY.pack(0, COMMIT if commit else ABORT),
        value=_VALUE.pack(0, coordinator_epoch),
    )
    return build_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
