"""The end of a transaction as its control record says it.

key:    version i16, type i16 (0 abort, 1 commit)
value:  version i16, coordinator epoch i32
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from braidlog.storage.producers.producer_state_manager import EndTxnMarker
from braidlog.wire.records.batch import BatchHeader
from braidlog.wire.records.reading import read_batch

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1


def read_end_txn_marker(buffer: bytes, header: BatchHeader) -> EndTxnMarker | None:
    """The marker in the control batch at `header.position` of `buffer`.

    None for a batch that the cleaner has emptied, and for control records that end no transaction.
    """
    for record in read_batch(buffer, header, check_crc=False):
        key = record.key
        value = record.value
        if key is None or value is None or len(key) < _KEY.size or len(value) < _VALUE.size:
            return None
        kind = _KEY.unpack_from(key)[1]
        if kind in (_ABORT, _COMMIT):
            return EndTxnMarker(kind == _COMMIT, _VALUE.unpack_from(value)[1])
    return None
