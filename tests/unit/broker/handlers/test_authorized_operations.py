from __future__ import annotations

from braidlog.broker.handlers.authorized_operations import (
    AUTHORIZED_OPERATIONS_OMITTED,
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
)


def test_the_bits_are_those_that_kafka_answers_without_an_authorizer() -> None:
    assert TOPIC_OPERATIONS == 0b1101_1111_1000
    assert GROUP_OPERATIONS == 0b1_0100_1000
    assert CLUSTER_OPERATIONS == 0b1_1111_1010_0000
    assert AUTHORIZED_OPERATIONS_OMITTED == -2147483648
