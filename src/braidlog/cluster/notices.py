"""The JSON of the smaller znodes: producer id blocks, finalised features, notices of changed ISRs and failed dirs.

/latest_producer_id_block                         v1   `ProducerIdBlock`
/feature                                          v2   (reads v1, v2)   `FeaturesRecord`
/isr_change_notification/isr_change_N             v1   partitions
/log_dir_event_notification/log_dir_event_N       v1   broker id
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from braidlog.cluster.records import BadRecordError, number, read_json, text, write_json
from braidlog.core.types import TopicPartition

PRODUCER_ID_BLOCK_SIZE: Final = 1000
_LOG_DIR_FAILURE: Final = 1


class ProducerIdBlock(NamedTuple):
    """Ids first to last, both included, that one broker may give out."""

    broker_id: int
    first: int
    last: int


class FeaturesRecord(NamedTuple):
    """Finalised feature levels (KIP-584); without `enabled` nothing may be finalised."""

    enabled: bool
    levels: Mapping[str, int]


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    # The bounds are texts: JSON readers that hold numbers as doubles would bend the large ones.
    return write_json(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(path: str, data: bytes) -> ProducerIdBlock:
    content = read_json(path, data)
    try:
        first, last = int(text(path, content, "block_start")), int(text(path, content, "block_end"))
    except ValueError:
        raise BadRecordError(path, "block_start and block_end must hold numbers") from None
    if not 0 <= first <= last:
        raise BadRecordError(path, f"the block {first} to {last} is empty or negative")
    return ProducerIdBlock(number(path, content, "broker"), first, last)


def encode_features(record: FeaturesRecord) -> bytes:
    levels = {name: {"max_version_level": level} for name, level in record.levels.items()}
    return write_json({"features": levels, "version": 2, "status": int(record.enabled)})


def decode_features(path: str, data: bytes) -> FeaturesRecord:
    content = read_json(path, data)
    version, status = number(path, content, "version"), number(path, content, "status")
    if version not in (1, 2) or status not in (0, 1):
        raise BadRecordError(path, f"version {version} with status {status} is not known")
    features = content.get("features")
    if not isinstance(features, dict) or not all(isinstance(bounds, dict) for bounds in features.values()):
        raise BadRecordError(path, "features must map names to their levels")
    levels = {name: number(path, bounds, "max_version_level") for name, bounds in features.items()}
    return FeaturesRecord(status == 1, levels)


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    changed = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    return write_json({"version": 1, "partitions": changed})


def decode_isr_change(path: str, data: bytes) -> list[TopicPartition]:
    partitions = read_json(path, data).get("partitions")
    if not isinstance(partitions, list) or not all(isinstance(each, dict) for each in partitions):
        raise BadRecordError(path, "partitions must be a list")
    return [TopicPartition(text(path, each, "topic"), number(path, each, "partition")) for each in partitions]


def encode_log_dir_event(broker_id: int) -> bytes:
    return write_json({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, data: bytes) -> int:
    return number(path, read_json(path, data), "broker")
