from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.cluster import records
from braidlog.cluster.records import (
    BadRecordError,
    BrokerRecord,
    FeaturesRecord,
    PartitionStateRecord,
    ProducerIdBlock,
    TopicRecord,
)
from braidlog.core.ids import ZERO_ID, parse_id
from braidlog.core.types import Endpoint, TopicPartition

# Written by Kafka 3.9.1's own encoders.
KAFKA_CONFIG = b'{"version":1,"config":{"retention.ms":"5"}}'
KAFKA_CONTROLLER = b'{"version":2,"brokerid":7,"timestamp":"123","kraftControllerEpoch":-1}'
KAFKA_CLUSTER_ID = b'{"version":"1","id":"abc"}'
KAFKA_PRODUCER_IDS = b'{"version":1,"broker":3,"block_start":"1000","block_end":"1999"}'
KAFKA_CONFIG_CHANGE = b'{"version":2,"entity_path":"topics/foo"}'
KAFKA_LOG_DIR_EVENT = b'{"version":1,"broker":4,"event":1}'
KAFKA_FEATURES = b'{"features":{"x":{"max_version_level":3}},"version":2,"status":1}'


def test_what_kafka_writes_is_written_and_read_alike() -> None:
    assert records.encode_config({"retention.ms": "5"}) == KAFKA_CONFIG
    assert records.decode_config("/c", KAFKA_CONFIG) == {"retention.ms": "5"}
    assert records.encode_controller(7, 123) == KAFKA_CONTROLLER
    assert records.decode_controller("/c", KAFKA_CONTROLLER) == 7
    assert records.encode_cluster_id("abc") == KAFKA_CLUSTER_ID
    assert records.decode_cluster_id("/c", KAFKA_CLUSTER_ID) == "abc"
    assert records.encode_producer_id_block(ProducerIdBlock(3, 1000, 1999)) == KAFKA_PRODUCER_IDS
    assert records.decode_producer_id_block("/p", KAFKA_PRODUCER_IDS) == ProducerIdBlock(3, 1000, 1999)
    assert records.encode_config_change("topics/foo") == KAFKA_CONFIG_CHANGE
    assert records.decode_config_change("/c", KAFKA_CONFIG_CHANGE) == "topics/foo"
    assert records.encode_log_dir_event(4) == KAFKA_LOG_DIR_EVENT
    assert records.decode_log_dir_event("/l", KAFKA_LOG_DIR_EVENT) == 4
    assert records.encode_features(FeaturesRecord(True, {"x": 3})) == KAFKA_FEATURES
    assert records.decode_features("/f", KAFKA_FEATURES) == FeaturesRecord(True, {"x": 3})
    assert records.encode_controller_epoch(9) == b"9"
    assert records.decode_controller_epoch("/e", b"9") == 9


def test_older_versions_are_read() -> None:
    v1 = b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"22"}'
    assert records.decode_broker("/b", v1).endpoints == (Endpoint("PLAINTEXT", "h", 9092),)
    v3 = b'{"version":3,"host":"h","port":1,"jmx_port":-1,"timestamp":"22","endpoints":["SSL://[::1]:9093"],"rack":"r"}'
    broker = records.decode_broker("/b", v3)
    assert broker.endpoints == (Endpoint("SSL", "::1", 9093),)
    assert broker.security_protocols == {"SSL": "SSL"}
    assert broker.rack == "r"
    assert records.decode_topic("/t", b'{"version":1,"partitions":{"1":[2],"0":[1]}}') == TopicRecord(
        ZERO_ID, ((1,), (2,))
    )
    change = b'{"version":1,"entity_type":"topics","entity_name":"foo"}'
    assert records.decode_config_change("/c", change) == "topics/foo"
    features = b'{"version":1,"status":0,"features":{"x":{"min_version_level":1,"max_version_level":3}}}'
    assert records.decode_features("/f", features) == FeaturesRecord(False, {"x": 3}, 1)


def test_a_topic_without_id_keeps_the_version_that_had_none() -> None:
    assert json.loads(records.encode_topic(TopicRecord(ZERO_ID, ((1,),))))["version"] == 2
    with_id = json.loads(records.encode_topic(TopicRecord(bytes(range(16)), ((1,),))))
    assert with_id["version"] == 3
    assert parse_id(with_id["topic_id"]) == bytes(range(16))


def test_a_machine_is_named_beside_what_kafka_writes() -> None:
    """Kafka reads a registration by its keys, and passes over others."""
    record = BrokerRecord((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"})
    plain = json.loads(records.encode_broker(record))
    named = json.loads(records.encode_broker(record._replace(placement_host="m1")))
    assert named == {**plain, "braidlog.host": "m1"}
    assert records.decode_broker("/b", json.dumps(plain).encode()).placement_host is None


names = st.text(st.characters(whitelist_categories=("Lu", "Ll", "Nd")), min_size=1, max_size=8)
ids = st.integers(0, 2**31 - 1)
id_lists = st.lists(ids, max_size=4).map(tuple)


@given(st.lists(st.tuples(names, names, st.integers(1, 65535)), min_size=1, max_size=3, unique_by=lambda each: each[0]))
def test_brokers_round_trip(listeners: list[tuple[str, str, int]]) -> None:
    endpoints = tuple(Endpoint(name, host, port) for name, host, port in listeners)
    record = BrokerRecord(
        endpoints, {each.listener: "SSL" for each in endpoints}, "rack", {"feature": (1, 2)}, 1234, 9999, "machine"
    )
    assert records.decode_broker("/b", records.encode_broker(record)) == record


@given(
    st.binary(min_size=16, max_size=16).filter(lambda each: each != ZERO_ID),
    st.lists(id_lists, max_size=5).map(tuple),
    st.dictionaries(st.integers(0, 5), id_lists, max_size=2),
)
def test_topics_round_trip(
    topic_id: bytes, partitions: tuple[tuple[int, ...], ...], moving: dict[int, tuple[int, ...]]
) -> None:
    record = TopicRecord(topic_id, partitions, moving, moving)
    assert records.decode_topic("/t", records.encode_topic(record)) == record


@given(st.integers(-1, 2**31 - 1), ids, id_lists, ids, st.integers(0, 1))
def test_partition_states_round_trip(leader: int, epoch: int, isr: tuple[int, ...], of: int, recovery: int) -> None:
    record = PartitionStateRecord(leader, epoch, isr, of, recovery)
    encoded = records.encode_partition_state(record)
    json.loads(encoded)
    assert records.decode_partition_state("/s", encoded) == record


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_configs_round_trip(overrides: dict[str, str]) -> None:
    assert records.decode_config("/c", records.encode_config(overrides)) == overrides


def test_isr_changes_round_trip() -> None:
    changed = [TopicPartition("a", 0), TopicPartition("b", 3)]
    assert records.decode_isr_change("/i", records.encode_isr_change(changed)) == changed


DECODERS = [
    records.decode_broker,
    records.decode_topic,
    records.decode_partition_state,
    records.decode_config,
    records.decode_config_change,
    records.decode_controller,
    records.decode_controller_epoch,
    records.decode_cluster_id,
    records.decode_producer_id_block,
    records.decode_features,
    records.decode_isr_change,
    records.decode_log_dir_event,
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "version",
                    "partitions",
                    "isr",
                    "leader",
                    "leader_epoch",
                    "config",
                    "endpoints",
                    "host",
                    "port",
                    "features",
                    "status",
                    "topic_id",
                    "timestamp",
                    "block_start",
                    "block_end",
                    "controller_epoch",
                    "adding_replicas",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("decode", DECODERS, ids=lambda decode: decode.__name__)
@settings(max_examples=50)
@given(data=st.one_of(st.binary(max_size=20), json_values.map(lambda value: json.dumps(value).encode())))
def test_whatever_is_in_a_node_decodes_or_is_named_bad(decode: object, data: bytes) -> None:
    assert callable(decode)
    with suppress(BadRecordError):
        decode("/where", data)


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (records.decode_topic, b'{"version":3,"topic_id":"short","partitions":{}}'),
        (records.decode_topic, b'{"version":3,"partitions":{"0":[1],"2":[1]}}'),
        (records.decode_partition_state, b'{"leader":1,"leader_epoch":0,"isr":[true],"controller_epoch":1}'),
        (records.decode_partition_state, b'{"leader":1,"leader_epoch":0,"isr":[1]}'),
        (records.decode_broker, b'{"version":5,"endpoints":["PLAINTEXT://h"]}'),
        (records.decode_broker, b'{"version":5,"endpoints":[],"features":[1]}'),
        (records.decode_config, b'{"version":1,"config":{"a":1}}'),
        (records.decode_config, b'{"version":1,"config":{}} trailing'),
        (records.decode_producer_id_block, b'{"version":1,"broker":1,"block_start":"9","block_end":"3"}'),
    ],
)
def test_wrong_content_is_refused(decode: object, data: bytes) -> None:
    assert callable(decode)
    with pytest.raises(BadRecordError):
        decode("/where", data)


def test_a_node_of_features_keeps_its_version() -> None:
    older = FeaturesRecord(True, {"x": 3}, 1)
    assert records.decode_features("/f", records.encode_features(older)) == older
