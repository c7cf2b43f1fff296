from __future__ import annotations

from braidlog.core import protocol_errors
from braidlog.core.protocol_errors import BY_CODE, NotLeaderOrFollowerError, UnknownServerError, from_code, name_of


def test_every_code_has_one_exception_and_a_kafka_name() -> None:
    classes = [
        value
        for value in vars(protocol_errors).values()
        if isinstance(value, type)
        and issubclass(value, protocol_errors.ProtocolError)
        and value is not protocol_errors.ProtocolError
    ]
    assert len(classes) == len(BY_CODE)
    # 99 is about snapshots of a KRaft quorum, which has no part here; 128 came with Kafka 4.0.
    assert sorted(BY_CODE) == [-1, *range(1, 99), *range(100, 129)]


def test_a_code_becomes_its_exception() -> None:
    error = from_code(6, "ask the controller")
    assert isinstance(error, NotLeaderOrFollowerError)
    assert error.retriable
    assert error.message == "ask the controller"
    assert str(error) == "NOT_LEADER_OR_FOLLOWER: ask the controller"
    assert from_code(6).message is None


def test_an_unknown_code_is_an_unknown_error() -> None:
    assert isinstance(from_code(9999), UnknownServerError)
    assert name_of(9999) == "UNKNOWN_ERROR_CODE_9999"
    assert name_of(0) == "NONE"


def test_a_message_with_a_long_name_in_it_still_fits_a_text_of_the_protocol() -> None:
    error = protocol_errors.GroupIdNotFoundError("é" * 32767)
    assert error.message is not None
    assert 0 < len(error.message.encode()) <= 32767


def test_a_long_message_is_cut_in_the_middle() -> None:
    message = from_code(6, f"the topic {'x' * 40_000} is led elsewhere").message
    assert message is not None
    assert len(message) < 2_100
    assert message.startswith("the topic x")
    assert message.endswith("x is led elsewhere")
