"""`braidlog log dump`: what is in any file of a data directory, entry by entry, as values that become JSON or a line.

An entry is a flat dict whose "type" says what it is: batch, record, index, time, aborted, producer, offset, epoch,
property, or problem where the bytes make no sense (the listing goes on as far as it can).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

from braidlog.core.errors import CorruptLogError, UserError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.storage.dirs.meta_properties import parse_properties
from braidlog.storage.dirs.offset_checkpoint_file import CHECKPOINT_NAMES, decode_offsets
from braidlog.storage.dirs.partition_metadata_file import FILE_NAME as PARTITION_METADATA
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.offset_index import OffsetIndex
from braidlog.storage.index.time_index import TimeIndex
from braidlog.storage.index.transaction_index import TransactionIndex
from braidlog.storage.inspection.batches import FoundBatch, Gap, walk_file
from braidlog.storage.log.leader_epoch_file_cache import CHECKPOINT_NAME, decode_epochs
from braidlog.storage.log.lost_tails import TAIL_SUFFIX
from braidlog.storage.log.segment_file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    STATE_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from braidlog.storage.producers.snapshot_files import decode_snapshot
from braidlog.wire.records.batch import BatchHeader
from braidlog.wire.records.compression import CODEC_NAMES
from braidlog.wire.records.control_records import CONTROL_TYPE_NAMES, control_type_of_key, end_txn_marker
from braidlog.wire.records.reading import Record, read_batch

Value = str | int | bool | None | dict[str, "str | None"]
Entry = dict[str, Value]

_NO_LIMIT: Final = 1 << 62


def dump_file(files: Files, path: str, *, records: bool = False) -> Iterator[Entry]:
    """The entries of one file, by the kind that its name says; UserError for a name of no known kind."""
    name = path.rpartition("/")[2]
    for suffix in STATE_SUFFIXES:
        name = name.removesuffix(suffix)
    if not files.exists(path):
        raise UserError(f"{path} does not exist")
    if name.endswith((LOG_SUFFIX, TAIL_SUFFIX)):
        return _batches(files, path, records)
    if name.endswith(TIME_INDEX_SUFFIX):
        return _times(files, path, _base_offset(name))
    if name.endswith(TXN_INDEX_SUFFIX):
        return _aborted(files, path)
    if name.endswith(INDEX_SUFFIX):
        return _offsets(files, path, _base_offset(name))
    if name.endswith(SNAPSHOT_SUFFIX):
        return _producers(files, path)
    if name in CHECKPOINT_NAMES or name == CHECKPOINT_NAME:
        return _checkpoint(files, path, name)
    if name in ("meta.properties", PARTITION_METADATA):
        return _properties(files, path)
    raise UserError(
        f"{path} is no file that can be listed: expected .log, .index, .timeindex, .txnindex, .snapshot, .tail, "
        f"a checkpoint, meta.properties or partition.metadata"
    )


def entry_text(entry: Entry) -> str:
    """An entry as one line for people."""
    fields = [f"{name}: {_text(value)}" for name, value in entry.items() if name != "type"]
    indent = "  | " if entry["type"] == "record" else ""
    mark = "PROBLEM " if entry["type"] == "problem" else ""
    return indent + mark + " ".join(fields)


def batch_entry(header: BatchHeader, position: int, valid: bool) -> Entry:
    return {
        "type": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.count,
        "position": position,
        "size": header.size,
        "magic": header.magic,
        "codec": CODEC_NAMES.get(header.codec, str(header.codec)),
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "max_timestamp": header.max_timestamp,
        "delete_horizon_ms": header.delete_horizon_ms if header.has_delete_horizon else None,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "crc": header.crc,
        "is_valid": valid,
    }


def _batches(files: Files, path: str, records: bool) -> Iterator[Entry]:
    digits = "".join(character for character in path.rpartition("/")[2][:25] if character.isdigit())
    for found in walk_file(files, path, int(digits or 0)):
        if isinstance(found, Gap):
            yield _problem(found.reason, position=found.position, size=found.size)
            continue
        yield batch_entry(found.header, found.position, found.is_valid)
        if records and found.is_valid:
            yield from _records(found)


def _records(found: FoundBatch) -> Iterator[Entry]:
    try:
        for record in read_batch(found.data, found.header, check_crc=False):
            yield _control_entry(record) if found.header.is_control else _record_entry(record)
    except ProtocolError as problem:
        yield _problem(str(problem.message), position=found.position, size=found.header.size)


def _record_entry(record: Record) -> Entry:
    return {
        "type": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": record.sequence,
        "key": readable(record.key),
        "value": readable(record.value),
        "headers": {name: readable(value) for name, value in record.headers},
    }


def _control_entry(record: Record) -> Entry:
    kind = control_type_of_key(record.key)
    marker = end_txn_marker(record)
    return {
        "type": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        "marker": CONTROL_TYPE_NAMES.get(kind, str(kind)),
        "coordinator_epoch": marker.coordinator_epoch if marker is not None else None,
    }


def readable(data: bytes | None) -> str | None:
    """Text where the bytes are text, else `base64:…`."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and (text.isprintable() or text.isspace() or not text):
        return text
    return "base64:" + base64.b64encode(data).decode()


def _offsets(files: Files, path: str, base_offset: int) -> Iterator[Entry]:
    index = OffsetIndex(files, HandlePool(files, 4), path, base_offset, _NO_LIMIT)
    for number in range(index.count):
        offset, position = index.entry(number)
        yield {"type": "index", "offset": offset, "position": position}


def _times(files: Files, path: str, base_offset: int) -> Iterator[Entry]:
    index = TimeIndex(files, HandlePool(files, 4), path, base_offset, _NO_LIMIT)
    for number in range(index.count):
        timestamp, offset = index.entry(number)
        yield {"type": "time", "timestamp": timestamp, "offset": offset}


def _aborted(files: Files, path: str) -> Iterator[Entry]:
    try:
        entries = TransactionIndex(files, HandlePool(files, 4), path).entries()
    except CorruptLogError as problem:
        yield _problem(str(problem))
        return
    for entry in entries:
        yield {"type": "aborted", **entry._asdict()}


def _producers(files: Files, path: str) -> Iterator[Entry]:
    try:
        producers = decode_snapshot(files.read_bytes(path), path)
    except CorruptLogError as problem:
        yield _problem(str(problem))
        return
    for producer in producers:
        yield {
            "type": "producer",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.last_offset,
            "last_timestamp": producer.last_timestamp,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_start": producer.txn_first_offset if producer.txn_first_offset >= 0 else None,
        }


def _checkpoint(files: Files, path: str, name: str) -> Iterator[Entry]:
    data = files.read_bytes(path)
    try:
        if name == CHECKPOINT_NAME:
            for epoch, start in decode_epochs(data, path):
                yield {"type": "epoch", "epoch": epoch, "start_offset": start}
            return
        for partition, offset in decode_offsets(data.decode("utf-8", "replace"), path).items():
            yield {"type": "offset", "topic": partition.topic, "partition": partition.partition, "offset": offset}
    except CorruptLogError as problem:
        yield _problem(str(problem))


def _properties(files: Files, path: str) -> Iterator[Entry]:
    for name, value in parse_properties(files.read_bytes(path).decode("utf-8", "replace")).items():
        yield {"type": "property", "name": name, "value": value}


def _problem(message: str, **where: int) -> Entry:
    return {"type": "problem", **where, "message": message}


def _base_offset(name: str) -> int:
    digits = name.partition(".")[0]
    if not digits.isdigit():
        raise UserError(f"{name}: the name of an index starts with its segment's base offset")
    return int(digits)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
