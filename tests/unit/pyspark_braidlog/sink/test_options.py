"""What a writer may be told, and what it refuses before anything is connected to."""

from __future__ import annotations

import pickle

import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.sink.options import Delivery, Recomputed, WriteOptions

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def checked(default: Delivery = Delivery.AT_LEAST_ONCE, **options: str) -> WriteOptions:
    given = {name.replace("__", "."): text for name, text in options.items()}
    return WriteOptions.checked({**SERVERS, **given}, default)


def test_names_are_taken_in_any_case_and_settings_without_their_prefix() -> None:
    options = checked(TOPIC=" orders ", Delivery="Exactly-Once", kafka__linger__ms="5")
    assert options.topic == "orders"
    assert options.delivery is Delivery.EXACTLY_ONCE
    assert options.client["linger.ms"] == "5"
    assert options.servers == "127.0.0.1:9092"


def test_defaults() -> None:
    options = checked()
    assert (options.topic, options.sink_name, options.recomputed) == (None, "", Recomputed.REFUSE)
    assert checked(Delivery.EXACTLY_ONCE).delivery is Delivery.EXACTLY_ONCE
    assert checked(Delivery.EXACTLY_ONCE, delivery="at-least-once").delivery is Delivery.AT_LEAST_ONCE


def test_a_transaction_may_take_long_unless_somebody_says_how_long() -> None:
    assert checked(Delivery.EXACTLY_ONCE).client["transaction.timeout.ms"] == "900000"
    assert "transaction.timeout.ms" not in checked().client
    given = checked(Delivery.EXACTLY_ONCE, kafka__transaction__timeout__ms="1000")
    assert given.client["transaction.timeout.ms"] == "1000"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delivery": "twice"}, "option delivery='twice' is not known; give at-least-once or exactly-once"),
        ({"recomputed": "double"}, "give refuse or keep"),
        ({"topic": " "}, "option topic is empty"),
        ({"sinkName": "a.b"}, "sinkName='a.b' has to be of letters"),
        ({"kafka__key__serializer": "x"}, "kafka.key.serializer is not supported: keys are written as the bytes"),
        ({"kafka__value__serializer": "x"}, "kafka.value.serializer is not supported"),
        ({"kafka__transactional__id": "x"}, "kafka.transactional.id is not supported"),
        ({"kafka__partitioner__class": "x"}, "a column named partition"),
        ({"kafka__bootstrap__servers": ""}, "option kafka.bootstrap.servers is missing"),
        ({"kafka__linger__ms": "soon"}, "linger.ms"),
        ({"kafka__sasl__mechanisn": "PLAIN"}, "did you mean kafka.sasl.mechanism?"),
        ({"topic__creation__default__partitions": "0"}, "partitions='0' is no whole number from 1 to"),
        ({"topic__creation__default__replication__factor": "2"}, "goes with topic.creation.default.partitions"),
        ({"kafka__allow__auto__create__topics": "no"}, "is neither true nor false"),
        ({"delivery": "exactly-once", "kafka__acks": "1"}, "acks=1"),
        ({"delivery": "exactly-once", "kafka__enable__idempotence": "false"}, "enable.idempotence"),
    ],
)
def test_refusals_say_what_is_wrong(options: dict[str, str], said: str) -> None:
    with pytest.raises(UserError) as refused:
        checked(**options)
    assert said in str(refused.value)


def test_options_go_to_tasks_and_keep_passwords_to_themselves() -> None:
    options = checked(kafka__ssl__key__password="secret")
    assert pickle.loads(pickle.dumps(options)) == options
    assert "secret" not in repr(options)
