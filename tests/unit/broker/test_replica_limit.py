from __future__ import annotations

import pytest

from braidlog.broker.replica_limit import refuse_move, refuse_replicas
from braidlog.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionInfo, TopicImage
from braidlog.controller.requests import NewTopic, Reassignment
from braidlog.core.protocol_errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from braidlog.core.types import BrokerId, LeaderEpoch, TopicPartition

ONE, TWO = BrokerId(1), BrokerId(2)
HELD = PartitionInfo(ONE, LeaderEpoch(0), (ONE,), (ONE,), partition_epoch=0)


def image(*ids: BrokerId) -> ClusterImage:
    brokers = {each: BrokerInfo(each, 1, ()) for each in ids}
    topic = TopicImage("t", b"t" * 16, (HELD,))
    return ClusterImage().apply(ImageDelta(topics_created=(topic,), brokers=brokers))


@pytest.mark.parametrize(
    "wanted",
    [NewTopic("t", 1, 2), NewTopic("t", assignments={0: (1,), 1: (1, 2)})],
    ids=["factor", "assignment"],
)
def test_a_second_replica_that_would_stay_empty_is_refused(wanted: NewTopic) -> None:
    assert isinstance(refuse_replicas(wanted, 1, image(ONE, TWO)), InvalidReplicationFactorError)


def test_the_default_factor_counts_where_none_is_given() -> None:
    assert refuse_replicas(NewTopic("t"), 1, image(ONE, TWO)) is None
    assert isinstance(refuse_replicas(NewTopic("t"), 3, image(ONE, TWO)), InvalidReplicationFactorError)


def test_a_lone_broker_is_left_to_the_placement() -> None:
    assert refuse_replicas(NewTopic("t", 1, 3), 1, image(ONE)) is None


def test_a_move_to_another_broker_is_refused() -> None:
    where = TopicPartition("t", 0)
    cluster = image(ONE, TWO)
    assert isinstance(refuse_move(Reassignment(where, (TWO,)), cluster), InvalidReplicaAssignmentError)
    assert refuse_move(Reassignment(where, (ONE,)), cluster) is None
    assert refuse_move(Reassignment(where, None), cluster) is None
    assert refuse_move(Reassignment(where, (TWO,)), image(ONE)) is None
