"""The JSON that Kafka 3.9 keeps in its znodes, written as it writes it and checked when read.

/brokers/ids/N                              v5   (reads v1 to v5)       `BrokerRecord`
/brokers/topics/T                           v3   (reads v1 to v3)       `TopicRecord`
/brokers/topics/T/partitions/P/state        v1                          `PartitionStateRecord`
/config/<entity>                            v1                          overrides
/config/changes/config_change_N             v2   (reads v1, v2)         entity path
/controller                                 v2   (reads v1, v2)         broker id
/controller_epoch                           decimal digits
/cluster/id                                 "1"                         cluster id
/latest_producer_id_block                   v1                          `ProducerIdBlock`
/feature                                    v1, v2                      `FeaturesRecord`
/isr_change_notification/isr_change_N       v1                          partitions
/log_dir_event_notification/log_dir_event_N v1                          broker id
/admin/reassign_partitions                  v1                          partitions and replicas
/admin/preferred_replica_election           v1                          partitions
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from json import scanner
from typing import Any, Final, NamedTuple

from braidlog.core.errors import BraidlogError
from braidlog.core.ids import ZERO_ID, id_text, parse_id
from braidlog.core.types import Endpoint, TopicPartition

PRODUCER_ID_BLOCK_SIZE: Final = 1000
_LOG_DIR_FAILURE: Final = 1
# Of a 32-bit number; Python refuses to convert thousands of them.
_MOST_DIGITS: Final = 10
# How a registration names the machine.
_PLACEMENT_HOST: Final = "braidlog.host"
_SURROGATE: Final = r"\\u[dD][89a-fA-F]"

_scan = scanner.make_scanner(json.JSONDecoder())  # type: ignore[arg-type]


class BadRecordError(BraidlogError):
    """A znode holds something that no Kafka wrote; the message names the node and what is wrong with it."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}; correct the node or restore the store from a backup")
        self.path = path


class BrokerRecord(NamedTuple):
    endpoints: tuple[Endpoint, ...]
    security_protocols: Mapping[str, str]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = {}
    timestamp_ms: int = -1
    jmx_port: int = -1
    # The machine, where several brokers may share one; `host` in the node is where the first listener is.
    placement_host: str | None = None


class TopicRecord(NamedTuple):
    """`partitions[p]` are the replicas of partition p; adding and removing only name partitions on the move."""

    topic_id: bytes
    partitions: tuple[tuple[int, ...], ...]
    adding: Mapping[int, tuple[int, ...]] = {}
    removing: Mapping[int, tuple[int, ...]] = {}


class PartitionStateRecord(NamedTuple):
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    # 1 after an unclean election, until the leader has recovered from it (KIP-704).
    leader_recovery_state: int = 0


class ProducerIdBlock(NamedTuple):
    """Ids first to last, both included, that one broker may give out."""

    broker_id: int
    first: int
    last: int


class FeaturesRecord(NamedTuple):
    """Finalised feature levels (KIP-584); without `enabled` nothing may be finalised."""

    enabled: bool
    levels: Mapping[str, int]
    # Of the node: Kafka reads 2 from 3.3 on, and 1 from 2.7 on.
    version: int = 2


def write_json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def read_json(path: str, data: bytes) -> dict[str, Any]:
    try:
        # Not json.loads: guessing the encoding and skipping blanks by pattern take longer than the parsing.
        source = data.decode().strip()
        content, end = _scan(source, 0)
    except (ValueError, StopIteration) as problem:
        raise BadRecordError(path, f"not JSON ({problem})") from None
    except RecursionError:
        raise BadRecordError(path, "not JSON (too many brackets within each other)") from None
    if end != len(source):
        raise BadRecordError(path, "not JSON (something follows the object)")
    if type(content) is not dict:
        raise BadRecordError(path, "not a JSON object")
    if "\\u" in source and re.search(_SURROGATE, source) is not None:
        _require_text(path, content)
    return content


def _require_text(path: str, content: dict[str, Any]) -> None:
    """Half of a surrogate pair, which only an escape can name, could not be sent or written."""
    try:
        write_json(content)
    except UnicodeEncodeError:
        raise BadRecordError(path, "not text (half of a surrogate pair)") from None


def encode_broker(record: BrokerRecord) -> bytes:
    # Old clients of the store look at host and port, which only a plaintext listener can give them.
    plain = [endpoint for endpoint in record.endpoints if record.security_protocols[endpoint.listener] == "PLAINTEXT"]
    content: dict[str, Any] = {
        "features": {name: {"min_version": low, "max_version": high} for name, (low, high) in record.features.items()},
        "listener_security_protocol_map": dict(record.security_protocols),
        "endpoints": [str(endpoint) for endpoint in record.endpoints],
        "jmx_port": record.jmx_port,
        "port": plain[0].port if plain else -1,
        "host": plain[0].host if plain else None,
        "version": 5,
        "timestamp": str(record.timestamp_ms),
    }
    if record.rack is not None:
        content["rack"] = record.rack
    if record.placement_host is not None:
        # Kafka passes over what it does not know.
        content[_PLACEMENT_HOST] = record.placement_host
    return write_json(content)


def decode_broker(path: str, data: bytes) -> BrokerRecord:
    content = read_json(path, data)
    version = number(path, content, "version")
    if version < 1:
        raise BadRecordError(path, f"version {version} of a broker's registration is not known")
    if version < 2:
        host, port = text(path, content, "host"), number(path, content, "port")
        endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", host, port),)
    else:
        endpoints = tuple(_endpoint(path, each) for each in _list(path, content, "endpoints"))
    protocols = content.get("listener_security_protocol_map")
    if protocols is None:
        protocols = {endpoint.listener: endpoint.listener for endpoint in endpoints}
    if not isinstance(protocols, dict) or any(endpoint.listener not in protocols for endpoint in endpoints):
        raise BadRecordError(path, "a listener has no security protocol")
    supported = content.get("features") or {}
    if not isinstance(supported, dict) or not all(isinstance(bounds, dict) for bounds in supported.values()):
        raise BadRecordError(path, "features must map names to their versions")
    features = {}
    for name, bounds in supported.items():
        features[name] = (number(path, bounds, "min_version"), number(path, bounds, "max_version"))
    try:
        timestamp_ms = int(content.get("timestamp", -1))
    except (TypeError, ValueError, OverflowError):
        raise BadRecordError(path, "timestamp is not a number") from None
    rack = content.get("rack")
    jmx_port = content.get("jmx_port", -1)
    placement_host = content.get(_PLACEMENT_HOST)
    return BrokerRecord(
        endpoints,
        protocols,
        None if rack is None else str(rack),
        features,
        timestamp_ms,
        jmx_port,
        None if placement_host is None else str(placement_host),
    )


def encode_topic(record: TopicRecord) -> bytes:
    content: dict[str, Any] = {
        "removing_replicas": {str(index): list(replicas) for index, replicas in record.removing.items()},
        "partitions": {str(index): list(replicas) for index, replicas in enumerate(record.partitions)},
        "adding_replicas": {str(index): list(replicas) for index, replicas in record.adding.items()},
        "version": 2,
    }
    if record.topic_id != ZERO_ID:
        content["topic_id"] = id_text(record.topic_id)
        content["version"] = 3
    return write_json(content)


def decode_topic(path: str, data: bytes) -> TopicRecord:
    """A topic of before topic ids has ZERO_ID; the controller that loads it gives it one."""
    content = read_json(path, data)
    topic_id = ZERO_ID
    if "topic_id" in content:
        try:
            topic_id = parse_id(content["topic_id"])
        except (TypeError, ValueError) as problem:
            raise BadRecordError(path, str(problem)) from None
    replicas = _replica_map(path, content, "partitions")
    partitions = []
    for index in range(len(replicas)):
        if index not in replicas:
            raise BadRecordError(path, f"partition {index} is missing")
        partitions.append(replicas[index])
    adding = _replica_map(path, content, "adding_replicas") if content.get("adding_replicas") else {}
    removing = _replica_map(path, content, "removing_replicas") if content.get("removing_replicas") else {}
    return TopicRecord(topic_id, tuple(partitions), adding, removing)


def encode_partition_state(record: PartitionStateRecord) -> bytes:
    state = record.leader_recovery_state
    recovery = f',"leader_recovery_state":{state}' if state else ""
    isr = ",".join(map(str, record.isr))
    # By hand, as a topic of a thousand partitions writes a thousand of these.
    return (
        f'{{"controller_epoch":{record.controller_epoch},"leader":{record.leader},"version":1,'
        f'"leader_epoch":{record.leader_epoch},"isr":[{isr}]{recovery}}}'
    ).encode()


def decode_partition_state(path: str, data: bytes) -> PartitionStateRecord:
    content = read_json(path, data)
    try:
        isr = content["isr"]
        leader, epoch, controller_epoch = content["leader"], content["leader_epoch"], content["controller_epoch"]
    except KeyError as missing:
        raise BadRecordError(path, f"{missing.args[0]} is missing") from None
    if type(leader) is not int or type(epoch) is not int or type(controller_epoch) is not int:
        raise BadRecordError(path, "leader, leader_epoch and controller_epoch must be numbers")
    recovery = content.get("leader_recovery_state", 0)
    if type(recovery) is not int or recovery not in (0, 1):
        raise BadRecordError(path, f"leader_recovery_state {recovery!r} is neither 0 nor 1")
    return PartitionStateRecord(leader, epoch, _broker_ids(path, isr, "isr"), controller_epoch, recovery)


def encode_config(overrides: Mapping[str, str]) -> bytes:
    return write_json({"version": 1, "config": dict(overrides)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    if not data:
        return {}
    overrides = read_json(path, data).get("config")
    if not isinstance(overrides, dict) or not all(isinstance(value, str) for value in overrides.values()):
        raise BadRecordError(path, "config must map keys to texts")
    return overrides


def encode_config_change(entity: str) -> bytes:
    return write_json({"version": 2, "entity_path": entity})


def decode_config_change(path: str, data: bytes) -> str:
    """The entity path whose config is to be read again."""
    content = read_json(path, data)
    version = number(path, content, "version")
    if version == 1:
        return f"{text(path, content, 'entity_type')}/{text(path, content, 'entity_name')}"
    if version == 2:
        return text(path, content, "entity_path")
    raise BadRecordError(path, f"version {version} of a config change is not known")


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    content = {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    return write_json(content)


def decode_controller(path: str, data: bytes) -> int:
    return number(path, read_json(path, data), "brokerid")


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(path: str, data: bytes) -> int:
    if not data.isdigit() or len(data) > _MOST_DIGITS:
        raise BadRecordError(path, "not a number")
    return int(data)


def encode_cluster_id(cluster_id: str) -> bytes:
    return write_json({"version": "1", "id": cluster_id})


def decode_cluster_id(path: str, data: bytes) -> str:
    return text(path, read_json(path, data), "id")


# Producer ids, features, notifications


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
    lowest = {"min_version_level": 1} if record.version == 1 else {}
    levels = {name: {**lowest, "max_version_level": level} for name, level in record.levels.items()}
    return write_json({"features": levels, "version": record.version, "status": int(record.enabled)})


def decode_features(path: str, data: bytes) -> FeaturesRecord:
    content = read_json(path, data)
    version, status = number(path, content, "version"), number(path, content, "status")
    if version not in (1, 2) or status not in (0, 1):
        raise BadRecordError(path, f"version {version} with status {status} is not known")
    features = content.get("features")
    if not isinstance(features, dict) or not all(isinstance(bounds, dict) for bounds in features.values()):
        raise BadRecordError(path, "features must map names to their levels")
    levels = {name: number(path, bounds, "max_version_level") for name, bounds in features.items()}
    return FeaturesRecord(status == 1, levels, version)


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


def encode_reassignment(replicas: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    wanted = [
        {"topic": each.topic, "partition": each.partition, "replicas": list(brokers)}
        for each, brokers in replicas.items()
    ]
    return write_json({"version": 1, "partitions": wanted})


def decode_reassignment(path: str, data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    partitions = read_json(path, data).get("partitions")
    if not isinstance(partitions, list) or not all(isinstance(each, dict) for each in partitions):
        raise BadRecordError(path, "partitions must be a list")
    return {
        TopicPartition(text(path, each, "topic"), number(path, each, "partition")): _broker_ids(
            path, each.get("replicas"), "replicas"
        )
        for each in partitions
    }


def decode_preferred_election(path: str, data: bytes) -> list[TopicPartition]:
    """Written as ISR change notifications are."""
    return decode_isr_change(path, data)


def number(path: str, content: Mapping[str, Any], key: str) -> int:
    value = content.get(key)
    if type(value) is not int:
        raise BadRecordError(path, f"{key} is {value!r}, not a number")
    return value


def text(path: str, content: Mapping[str, Any], key: str) -> str:
    value = content.get(key)
    if not isinstance(value, str):
        raise BadRecordError(path, f"{key} is {value!r}, not a text")
    return value


def _list(path: str, content: Mapping[str, Any], key: str) -> list[Any]:
    value = content.get(key)
    if not isinstance(value, list):
        raise BadRecordError(path, f"{key} is {value!r}, not a list")
    return value


def _broker_ids(path: str, value: Any, key: str) -> tuple[int, ...]:
    if type(value) is not list or any(type(each) is not int for each in value):
        raise BadRecordError(path, f"{key} is {value!r}, not a list of broker ids")
    return tuple(value)


def _replica_map(path: str, content: Mapping[str, Any], key: str) -> dict[int, tuple[int, ...]]:
    value = content.get(key)
    if not isinstance(value, dict) or not all(index.isdecimal() and len(index) <= _MOST_DIGITS for index in value):
        raise BadRecordError(path, f"{key} must map partitions to replicas")
    return {int(index): _broker_ids(path, replicas, f"{key}[{index}]") for index, replicas in value.items()}


def _endpoint(path: str, value: Any) -> Endpoint:
    listener, found, address = str(value).partition("://")
    host, colon, port = address.rpartition(":")
    digits = port.removeprefix("-")
    if not found or not colon or not digits.isdecimal() or len(digits) > _MOST_DIGITS:
        raise BadRecordError(path, f"{value!r} is not an endpoint such as PLAINTEXT://host:9092")
    return Endpoint(listener, host.removeprefix("[").removesuffix("]"), int(port))
