"""The aborted transactions of one segment, which read_committed readers have to skip.

    0       2                10               18               26               34
    +-------+----------------+----------------+----------------+----------------+
    | ver 0 | producer id    | first offset   | last offset    | last stable    |   int16, then int64 each
    |       |                |                | (the marker)   | offset         |
    +-------+----------------+----------------+----------------+----------------+

Entries come in the order of their markers. The file exists only where something was aborted.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import Files
from braidlog.storage.handles import Handle, HandlePool

ENTRY_SIZE: Final = 34
_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    # Where the last stable offset stood once this transaction was over: a reader below it needs no later entry.
    last_stable_offset: int


def encode_aborted(txn: AbortedTxn) -> bytes:
    return _ENTRY.pack(_VERSION, txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset)


class TransactionIndex:
    def __init__(self, files: Files, handles: HandlePool, path: str) -> None:
        self.path = path
        self._files = files
        self._handle: Handle = handles.handle(path)
        self._entries: list[AbortedTxn] | None = None

    def entries(self) -> list[AbortedTxn]:
        """Raises CorruptLogError where the file is none of ours."""
        entries = self._entries
        if entries is None:
            data = self._files.read_bytes(self.path) if self._files.exists(self.path) else b""
            if len(data) % ENTRY_SIZE != 0:
                raise CorruptLogError(f"{self.path}: {len(data)} bytes are not whole {ENTRY_SIZE}-byte entries")
            entries = []
            for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
                if version != _VERSION or last < first:
                    raise CorruptLogError(f"{self.path}: entry {len(entries)} is not an aborted transaction")
                entries.append(AbortedTxn(producer_id, first, last, stable))
            self._entries = entries
        return entries

    def append(self, txn: AbortedTxn) -> None:
        """Written at once: markers are few, and no later pass would find out what was aborted."""
        entries = self.entries()
        self._handle.get().writev([encode_aborted(txn)])
        entries.append(txn)

    def collect(self, start: int, end: int, found: list[AbortedTxn]) -> bool:
        """Add to `found` what touches offsets `start` … `end` - 1; true once later segments cannot have any more."""
        for txn in self.entries():
            if txn.last_offset >= start and txn.first_offset < end:
                found.append(txn)
            if txn.last_stable_offset >= end:
                return True
        return False

    def truncate_to_offset(self, offset: int) -> None:
        """Drop the transactions whose marker is at or past `offset`."""
        entries = self.entries()
        kept = len(entries)
        while kept > 0 and entries[kept - 1].last_offset >= offset:
            kept -= 1
        if kept < len(entries):
            self.keep(kept)

    def keep(self, count: int) -> None:
        """Keep the first `count` entries and nothing else in the file, also no part of one that was not written."""
        self._handle.get().truncate(count * ENTRY_SIZE)
        del self.entries()[count:]

    def replace(self, entries: list[AbortedTxn]) -> None:
        """Have exactly these entries, also where the file could not be read; one that has them already stays."""
        data = self._files.read_bytes(self.path) if self._files.exists(self.path) else b""
        wanted = b"".join([encode_aborted(txn) for txn in entries])
        if data != wanted:
            kept = len(data) if wanted.startswith(data) else len(wanted) if data.startswith(wanted) else 0
            file = self._handle.get()
            file.truncate(kept)
            if kept < len(wanted):
                file.writev([wanted[kept:]])
        self._entries = entries

    def reset(self) -> None:
        """Forget everything, also what could not be read."""
        if self._files.exists(self.path):
            self._handle.get().truncate(0)
        self._entries = []

    def sync(self) -> None:
        if self._files.exists(self.path):
            self._handle.get().sync()

    def release(self) -> None:
        self._entries = None
        self._handle.release()

    def forget(self) -> None:
        self._handle.forget()

    def move(self, path: str) -> None:
        self.path = path
        self._handle.path = path
