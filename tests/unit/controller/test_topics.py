from __future__ import annotations

import json

import pytest

from braidlog.cluster.image import topic_entity
from braidlog.cluster.store import Create, SetData
from braidlog.controller.deletion import forget_topics
from braidlog.controller.plan import Put, Remove
from braidlog.controller.requests import NewPartitions, NewTopic, TopicRef
from braidlog.controller.topics import (
    add_partitions,
    assign_missing_topic_ids,
    create_topics,
    delete_topics,
)
from braidlog.core import protocol_errors as errors
from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import ProtocolError
from support.controller_harness import EPOCH, context, ids, partition, topic


def refusal(request: NewTopic, **more: object) -> ProtocolError:
    existing = context(topic("orders"), topic("a.b"), **more)  # type: ignore[arg-type]
    plan, (result,) = create_topics(existing, [request], False)
    assert plan.delta.empty
    assert not plan.steps
    assert result.name == request.name
    assert result.error is not None
    assert result.error.message
    return result.error


def test_a_topic_is_created_with_its_nodes_in_one_plan() -> None:
    plan, (result,) = create_topics(context(), [NewTopic("t", 2, 1, configs={"retention.ms": "5"})], False)
    assert result.error is None
    assert (result.partitions, result.replication_factor) == (2, 1)
    assert result.configs == {"retention.ms": "5"}
    (created,) = plan.delta.topics_created
    assert created.topic_id == result.topic_id != ZERO_ID
    assert plan.delta.configs_changed == {topic_entity("t"): {"retention.ms": "5"}}
    assert [step.path for step in plan.steps] == [
        "/config/topics/t",
        "/brokers/topics/t",
        "/brokers/topics/t/partitions",
        "/brokers/topics/t/partitions/0",
        "/brokers/topics/t/partitions/0/state",
        "/brokers/topics/t/partitions/1",
        "/brokers/topics/t/partitions/1/state",
    ]
    state = plan.steps[4]
    assert isinstance(state, Create)
    assert json.loads(state.data) == {
        "controller_epoch": EPOCH, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1],
    }  # fmt: skip
    assert created.partitions[0].partition_epoch == 0


def test_defaults_come_from_the_broker() -> None:
    settings = {"num.partitions": "3", "default.replication.factor": "2"}
    _, (result,) = create_topics(context(brokers={1: None, 2: None}, settings=settings), [NewTopic("t")], False)
    assert (result.partitions, result.replication_factor) == (3, 2)


def test_a_manual_assignment() -> None:
    wanted = NewTopic("t", assignments={1: (1,), 0: (2,)})
    plan, (result,) = create_topics(context(brokers={1: None, 2: None}), [wanted], False)
    assert (result.error, result.partitions, result.replication_factor) == (None, 2, 1)
    assert [each.replicas for each in plan.delta.topics_created[0].partitions] == [ids(2), ids(1)]


def test_a_broker_that_shuts_down_gets_no_new_partition_to_lead() -> None:
    start = context(topic("t", partition(2, (2, 1), (2, 1))), brokers={1: None, 2: None})
    start = start._replace(shutting_down=frozenset(ids(1)))
    both, only = NewTopic("u", assignments={0: (1, 2)}), NewTopic("v", assignments={0: (1,)})
    plan, _ = create_topics(start, [both, only], False)
    created = {each.name: each.partitions[0] for each in plan.delta.topics_created}
    assert (created["u"].leader, created["u"].isr) == (2, ids(2))
    assert (created["v"].leader, created["v"].isr) == (1, ids(1))
    plan, _ = add_partitions(start, [NewPartitions("t", 2, ((1, 2),))], False)
    grown = plan.delta.topics_changed[0][1].partitions[1]
    assert (grown.leader, grown.isr) == (2, ids(2))


def test_an_adopted_topic_keeps_its_id() -> None:
    _, (result,) = create_topics(context(), [NewTopic("t", 1, 1, topic_id=b"x" * 16)], False)
    assert result.topic_id == b"x" * 16


def test_validate_only_changes_nothing_and_refuses_the_same() -> None:
    plan, results = create_topics(context(topic("orders")), [NewTopic("t", 4, 1), NewTopic("orders", 1, 1)], True)
    assert plan.delta.empty
    assert not plan.steps
    assert (results[0].error, results[0].partitions, results[0].topic_id) == (None, 4, ZERO_ID)
    assert isinstance(results[1].error, errors.TopicAlreadyExistsError)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (NewTopic("orders", 1, 1), errors.TopicAlreadyExistsError),
        (NewTopic("a_b", 1, 1), errors.InvalidTopicError),
        (NewTopic("", 1, 1), errors.InvalidTopicError),
        (NewTopic("no/slash", 1, 1), errors.InvalidTopicError),
        (NewTopic("..", 1, 1), errors.InvalidTopicError),
        (NewTopic("x" * 250, 1, 1), errors.InvalidTopicError),
        (NewTopic("t", 0, 1), errors.InvalidPartitionsError),
        (NewTopic("t", -2, 1), errors.InvalidPartitionsError),
        (NewTopic("t", 10_001, 1), errors.PolicyViolationError),
        (NewTopic("t", 2**31 - 1, 1), errors.PolicyViolationError),
        (NewTopic("t", 1, 0), errors.InvalidReplicationFactorError),
        (NewTopic("t", 1, -2), errors.InvalidReplicationFactorError),
        (NewTopic("t", 1, 2), errors.InvalidReplicationFactorError),
        (NewTopic("t", 1, -1, {0: (1,)}), errors.InvalidRequestError),
        (NewTopic("t", -1, 1, {0: (1,)}), errors.InvalidRequestError),
        (NewTopic("t", -1, -1, {0: (9,)}), errors.InvalidReplicaAssignmentError),
        (NewTopic("t", -1, -1, {1: (1,)}), errors.InvalidReplicaAssignmentError),
        (NewTopic("t", 1, 1, configs={"retention.ms": "soon"}), errors.InvalidConfigError),
        (NewTopic("t", 1, 1, configs={"no.such": "1"}), errors.InvalidConfigError),
        (NewTopic("t", 1, 1, configs={"retention.ms": None}), errors.InvalidConfigError),
    ],
)
def test_what_cannot_be_created(request_: NewTopic, error: type[ProtocolError]) -> None:
    assert isinstance(refusal(request_), error)


def test_a_name_given_twice_is_refused_and_the_others_are_created() -> None:
    requests = [NewTopic("t", 1, 1), NewTopic("u", 1, 1), NewTopic("t", 2, 1)]
    plan, results = create_topics(context(), requests, False)
    assert [type(result.error) for result in results] == [
        errors.InvalidRequestError, type(None), errors.InvalidRequestError,
    ]  # fmt: skip
    assert [created.name for created in plan.delta.topics_created] == ["u"]


def test_the_partitions_of_one_request_are_counted_together() -> None:
    requests = [NewTopic("t", 6_000, 1), NewTopic("u", 6_000, 1), NewTopic("v", 4_000, 1)]
    _, results = create_topics(context(), requests, False)
    assert [type(result.error) for result in results] == [type(None), errors.PolicyViolationError, type(None)]


def test_growing_a_topic() -> None:
    before = topic("t")
    plan, (result,) = add_partitions(context(before), [NewPartitions("t", 3)], False)
    assert result.error is None
    ((old, new),) = plan.delta.topics_changed
    assert old is before
    assert new.partitions[:1] == before.partitions
    assert len(new.partitions) == 3
    assert new.version == before.version + 1
    assert isinstance(plan.steps[0], SetData)
    assert plan.steps[0].version == before.version
    assert [step.path for step in plan.steps[1:]] == [
        "/brokers/topics/t/partitions/1",
        "/brokers/topics/t/partitions/1/state",
        "/brokers/topics/t/partitions/2",
        "/brokers/topics/t/partitions/2/state",
    ]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (NewPartitions("no", 2), errors.UnknownTopicOrPartitionError),
        (NewPartitions("t", 1), errors.InvalidPartitionsError),
        (NewPartitions("t", 0), errors.InvalidPartitionsError),
        (NewPartitions("t", -5), errors.InvalidPartitionsError),
        (NewPartitions("t", 2**31 - 1), errors.PolicyViolationError),
        (NewPartitions("t", 3, ((1,),)), errors.InvalidReplicaAssignmentError),
        (NewPartitions("t", 2, ((7,),)), errors.InvalidReplicaAssignmentError),
        (NewPartitions("t", 2, ((1, 2),)), errors.InvalidReplicaAssignmentError),
        (NewPartitions("moving", 2), errors.ReassignmentInProgressError),
    ],
)
def test_what_cannot_grow(request_: NewPartitions, error: type[ProtocolError]) -> None:
    moving = topic("moving", partition(1, (1,), (1, 2), adding=ids(2)))
    start = context(topic("t"), moving, brokers={1: None, 2: None})
    plan, (result,) = add_partitions(start, [request_], False)
    assert isinstance(result.error, error)
    assert plan.delta.empty


def test_growing_by_assignment_and_validate_only() -> None:
    start = context(topic("t"), brokers={1: None, 2: None})
    plan, (result,) = add_partitions(start, [NewPartitions("t", 2, ((2,),))], False)
    assert result.error is None
    assert plan.delta.topics_changed[0][1].partitions[1].replicas == ids(2)
    plan, (result,) = add_partitions(start, [NewPartitions("t", 2, ((2,),))], True)
    assert result.error is None
    assert not plan.steps


def test_deleting_marks_first_and_forgets_last() -> None:
    doomed = topic("t")
    plan, (result,) = delete_topics(context(doomed), [TopicRef(None, doomed.topic_id)])
    assert (result.error, result.name, result.topic_id) == (None, "t", doomed.topic_id)
    assert list(plan.steps) == [Put("/admin/delete_topics/t")]
    assert plan.delta.topics_deleted == (doomed,)
    assert plan.delta.configs_deleted == ("topics/t",)
    (removals,) = forget_topics(plan.delta.topics_deleted)
    assert [step.path for step in removals] == [
        "/brokers/topics/t/partitions/0/state",
        "/brokers/topics/t/partitions/0",
        "/brokers/topics/t/partitions",
        "/brokers/topics/t",
        "/config/topics/t",
        "/admin/delete_topics/t",
    ]
    assert all(isinstance(step, Remove) for step in removals)


def test_large_topics_are_forgotten_in_pieces_and_each_mark_with_its_topic() -> None:
    partitions = tuple(topic("t").partitions) * 700
    doomed = [topic(name)._replace(partitions=partitions) for name in ("a", "b", "c")]
    transactions = list(forget_topics(doomed))
    assert len(transactions) > 5
    assert max(map(len, transactions)) < 600
    paths = [[step.path for step in steps] for steps in transactions]
    assert len({path for steps in paths for path in steps}) == sum(map(len, paths)) == 3 * (2 * 700 + 4)
    for name in ("a", "b", "c"):
        places = [number for number, steps in enumerate(paths) if f"/admin/delete_topics/{name}" in steps]
        assert places == [number for number, steps in enumerate(paths) if f"/brokers/topics/{name}" in steps]


def test_what_cannot_be_deleted() -> None:
    known = topic("t")
    refs = [TopicRef("no"), TopicRef(None, b"?" * 16), TopicRef("t"), TopicRef(None, known.topic_id)]
    plan, results = delete_topics(context(known), refs)
    assert [type(result.error) for result in results] == [
        errors.UnknownTopicOrPartitionError,
        errors.UnknownTopicIdError,
        errors.InvalidRequestError,
        errors.InvalidRequestError,
    ]
    assert plan.delta.empty
    _, (result,) = delete_topics(context(known, settings={"delete.topic.enable": "false"}), [TopicRef("t")])
    assert isinstance(result.error, errors.TopicDeletionDisabledError)


def test_topics_without_id_get_one() -> None:
    plan = assign_missing_topic_ids(context(topic("t")._replace(topic_id=ZERO_ID), topic("u")))
    ((_, new),) = plan.delta.topics_changed
    assert new.name == "t"
    assert new.topic_id != ZERO_ID
    assert len(plan.steps) == 1
