"""Decides about topics: what may be created, grown and deleted, and which nodes that takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from braidlog.cluster import paths, records
from braidlog.cluster.image import ClusterImage, ImageDelta, TopicImage, topic_entity
from braidlog.cluster.store import Create, SetData
from braidlog.config.topic import validate_overrides
from braidlog.config.topic_names import validate_name
from braidlog.controller import deletion
from braidlog.controller.placement import assign, check_assignments, check_replicas, racks_of, shared_hosts
from braidlog.controller.plan import (
    ControllerContext,
    Plan,
    Put,
    RequestBatch,
    RoleChange,
    Step,
    create_partitions,
    initial_states,
    topic_data,
)
from braidlog.controller.requests import (
    USE_DEFAULT,
    DeletedTopicResult,
    NewPartitions,
    NewTopic,
    NewTopicResult,
    TopicRef,
    TopicResult,
)
from braidlog.core.ids import ZERO_ID, id_text
from braidlog.core.protocol_errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaStorageError,
    PolicyViolationError,
    ProtocolError,
    ReassignmentInProgressError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import BrokerId, TopicPartition

# What one request may create, as in KRaft: a number typed wrong must not take the broker's memory.
MOST_NEW_PARTITIONS: Final = 10_000


def create_topics(
    context: ControllerContext,
    requests: Sequence[NewTopic],
    validate_only: bool,
    times: Mapping[str, int] | None = None,
    already: int = 0,
) -> tuple[Plan, list[NewTopicResult]]:
    """One transaction for all that can be created; the others get an error each.

    These may be a piece of a larger request: `times` is how often that names each topic, `already` how many partitions
    the pieces before this one have created.
    """
    times = Counter(request.name for request in requests) if times is None else times
    created: list[TopicImage] = []
    configs: dict[str, dict[str, str]] = {}
    steps: list[Step] = []
    results: list[NewTopicResult] = []
    for request in requests:
        try:
            if times[request.name] > 1:
                raise InvalidRequestError(f"the request names the topic {request.name!r} more than once")
            _check_count(already, _partition_count(context, request))
            topic = _new_topic(context, request)
            overrides = _overrides(context, request)
        except ProtocolError as error:
            results.append(NewTopicResult(request.name, error))
            continue
        results.append(
            NewTopicResult(
                name=topic.name,
                topic_id=ZERO_ID if validate_only else topic.topic_id,
                partitions=len(topic.partitions),
                replication_factor=topic.replication_factor,
                configs=overrides,
            )
        )
        created.append(topic)
        already += len(topic.partitions)
        if overrides:
            configs[topic_entity(topic.name)] = overrides
        steps.append(Put(paths.config(topic_entity(topic.name)), records.encode_config(overrides)))
        steps.append(Create(paths.topic(topic.name), topic_data(topic)))
        steps.append(Create(paths.partitions(topic.name)))
        steps += create_partitions(topic, 0)
    if validate_only:
        return Plan(), results
    delta = ImageDelta(topics_created=tuple(created), configs_changed=configs)
    return Plan(steps, delta, _told(context, [(topic, 0) for topic in created])), results


def assign_topics(context: ControllerContext, requests: Sequence[NewTopic]) -> tuple[Plan, list[NewTopicResult]]:
    """Topics as a broker creates them that is not the controller: only assigned. The controller finds leaders."""
    plan, results = create_topics(context, requests, False)
    parents = {paths.topic(topic.name) for topic in plan.delta.topics_created}
    kept = [step for step in plan.steps if isinstance(step, Put) or step.path in parents]
    return Plan(kept), results


def _told(context: ControllerContext, topics: Sequence[tuple[TopicImage, int]]) -> Sequence[RequestBatch]:
    """Replicas of the partitions from the given one on are new everywhere."""
    roles: list[RoleChange] = []
    for topic, first in topics:
        for index in range(first, len(topic.partitions)):
            where = TopicPartition(topic.name, index)
            brokers = context.online_replicas(topic.partitions[index], where)
            roles.append(RoleChange(where, brokers, brokers))
    return (RequestBatch(roles),) if roles else ()


def _new_topic(context: ControllerContext, request: NewTopic) -> TopicImage:
    image = context.image
    validate_name(request.name)
    if image.topic(request.name) is not None:
        raise TopicAlreadyExistsError(f"Topic '{request.name}' already exists.")
    _check_deletion(context, request.name)
    other = image.colliding_topic(request.name)
    if other is not None:
        raise InvalidTopicError(
            f"Topic '{request.name}' collides with the existing topic '{other}': metrics show '.' and '_' alike"
        )
    if request.assignments:
        if (request.partitions, request.replication_factor) != (USE_DEFAULT, USE_DEFAULT):
            raise InvalidRequestError(
                "give either an assignment or counts: with an assignment, partitions and replication factor are -1"
            )
        check_assignments(request.assignments, image.brokers)
        assignment = [request.assignments[index] for index in range(len(request.assignments))]
    else:
        assignment = _placed(context, request.partitions, request.replication_factor)
    partitions = initial_states(assignment, _staying(context), context.controller_epoch)
    topic_id = context.new_id() if request.topic_id == ZERO_ID else request.topic_id
    return TopicImage(request.name, topic_id, partitions)


def _staying(context: ControllerContext) -> list[BrokerId]:
    """One that shuts down would have to hand over at once what it gets to lead."""
    return [each for each in context.image.brokers if each not in context.shutting_down]


def _check_deletion(context: ControllerContext, name: str) -> None:
    going = context.deletions.get(name)
    if going is None:
        return
    if going.unremoved:
        raise KafkaStorageError(
            f"the deleted topic '{name}' could not be removed from the store yet; free some space and try again"
        )
    if context.patient and not going.suspended:
        raise deletion.DeletionInProgress(name)
    raise TopicAlreadyExistsError(f"Topic '{name}' is marked for deletion.")


def _partition_count(context: ControllerContext, request: NewTopic) -> int:
    if request.assignments:
        return len(request.assignments)
    return context.settings.get_int("num.partitions") if request.partitions == USE_DEFAULT else request.partitions


def _check_count(already: int, added: int) -> None:
    if already + added > MOST_NEW_PARTITIONS:
        raise PolicyViolationError(
            f"one request creates at most {MOST_NEW_PARTITIONS} partitions, not {already + added}: use several"
        )


def _placed(context: ControllerContext, partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
    settings = context.settings
    if partitions == USE_DEFAULT:
        partitions = settings.get_int("num.partitions")
    if replication_factor == USE_DEFAULT:
        replication_factor = settings.get_int("default.replication.factor")
    if partitions < 1:
        raise InvalidPartitionsError(
            f"a topic has at least one partition, not {partitions}; -1 takes the broker's num.partitions"
        )
    if replication_factor < 1:
        raise InvalidReplicationFactorError(
            f"a partition has at least one replica, not {replication_factor}; "
            "-1 takes the broker's default.replication.factor"
        )
    brokers = context.image.brokers
    return assign(partitions, replication_factor, racks_of(brokers), context.rng, hosts=shared_hosts(brokers))


def _overrides(context: ControllerContext, request: NewTopic) -> dict[str, str]:
    missing = sorted(key for key, value in request.configs.items() if value is None)
    if missing:
        raise InvalidConfigError(f"no value was given for {', '.join(missing)}: leave out what shall be the default")
    overrides = {key: value for key, value in request.configs.items() if value is not None}
    if overrides:
        validate_overrides(overrides, context.settings)
    return overrides


def add_partitions(
    context: ControllerContext,
    requests: Sequence[NewPartitions],
    validate_only: bool,
    times: Mapping[str, int] | None = None,
    already: int = 0,
) -> tuple[Plan, list[TopicResult]]:
    """`times` and `already` are of the whole request, as in `create_topics`."""
    times = Counter(request.topic for request in requests) if times is None else times
    changed: list[tuple[TopicImage, TopicImage]] = []
    steps: list[Step] = []
    results: list[TopicResult] = []
    for request in requests:
        try:
            if times[request.topic] > 1:
                raise InvalidRequestError(f"the request names the topic {request.topic!r} more than once")
            before, after = _grown(context, request, already)
        except ProtocolError as error:
            results.append(TopicResult(request.topic, error))
            continue
        added = len(after.partitions) - len(before.partitions)
        already += added
        results.append(TopicResult(request.topic, added=added))
        changed.append((before, after))
        steps.append(SetData(paths.topic(after.name), topic_data(after), before.version))
        steps += create_partitions(after, len(before.partitions))
    if validate_only:
        return Plan(), results
    grown = [(after, len(before.partitions)) for before, after in changed]
    return Plan(steps, ImageDelta(topics_changed=tuple(changed)), _told(context, grown)), results


def _grown(context: ControllerContext, request: NewPartitions, already: int) -> tuple[TopicImage, TopicImage]:
    image = context.image
    topic = image.topic(request.topic)
    if topic is None or topic.name in context.deletions:
        raise UnknownTopicOrPartitionError(f"The topic '{request.topic}' does not exist.")
    if any(partition.reassigning for partition in topic.partitions):
        raise ReassignmentInProgressError(
            f"partitions of '{topic.name}' are being reassigned: wait until that is done, or cancel it"
        )
    have = len(topic.partitions)
    if request.count == have:
        raise InvalidPartitionsError(f"Topic already has {have} partition(s).")
    if request.count < have:
        raise InvalidPartitionsError(
            f"the topic '{topic.name}' has {have} partition(s) and {request.count} would be fewer: "
            "a topic never shrinks, create another one instead"
        )
    added = request.count - have
    _check_count(already, added)
    if request.assignments is None:
        assignment = assign(
            added,
            topic.replication_factor,
            racks_of(image.brokers),
            context.rng,
            hosts=shared_hosts(image.brokers),
            first_partition=have,
            leader_of_first=topic.partitions[0].replicas[0],
        )
    else:
        assignment = _checked_additions(context, topic, request.assignments, added)
    new = initial_states(assignment, _staying(context), context.controller_epoch)
    return topic, TopicImage(topic.name, topic.topic_id, topic.partitions + new, topic.version + 1)


def _checked_additions(
    context: ControllerContext, topic: TopicImage, assignments: Sequence[Sequence[int]], added: int
) -> list[tuple[int, ...]]:
    if len(assignments) != added:
        raise InvalidReplicaAssignmentError(
            f"{added} partition(s) would be added, but {len(assignments)} assignment(s) were given"
        )
    for place, replicas in enumerate(assignments):
        where = f"partition {len(topic.partitions) + place}"
        check_replicas(replicas, context.image.brokers, where)
        if len(replicas) != topic.replication_factor:
            raise InvalidReplicaAssignmentError(
                f"'{topic.name}' has a replication factor of {topic.replication_factor}, "
                f"but {where} was given {len(replicas)} replica(s)"
            )
    return [tuple(replicas) for replicas in assignments]


def find(image: ClusterImage, ref: TopicRef) -> TopicImage | None:
    return image.topic_by_id(ref.topic_id) if ref.name is None else image.topic(ref.name)


def times_named(image: ClusterImage, requests: Sequence[TopicRef]) -> Counter[str]:
    """How often each topic is named, be it by its name or by its id."""
    found = (find(image, ref) for ref in requests)
    return Counter(topic.name for topic in found if topic is not None)


def delete_topics(
    context: ControllerContext, requests: Sequence[TopicRef], times: Mapping[str, int] | None = None
) -> tuple[Plan, list[DeletedTopicResult]]:
    """Marks them in the store and begins; `times` is of the whole request, as in `create_topics`."""
    times = times_named(context.image, requests) if times is None else times
    enabled = context.settings.get_bool("delete.topic.enable")
    deleted: list[TopicImage] = []
    results: list[DeletedTopicResult] = []
    for ref in requests:
        topic = find(context.image, ref)
        error: ProtocolError | None = None
        if not enabled:
            error = TopicDeletionDisabledError("delete.topic.enable is false on this cluster")
        elif topic is None and ref.name is None:
            error = UnknownTopicIdError(f"no topic has the id {id_text(ref.topic_id)}")
        elif topic is None:
            error = UnknownTopicOrPartitionError(f"The topic '{ref.name}' does not exist.")
        elif times.get(topic.name, 1) > 1:
            error = InvalidRequestError(f"the request names the topic '{topic.name}' more than once")
        else:
            deleted.append(topic)
        if error is not None or topic is None:
            results.append(DeletedTopicResult(ref.name, ref.topic_id, error))
        else:
            results.append(DeletedTopicResult(topic.name, topic.topic_id))
    return deletion.begin(
        context, [topic for topic in deleted if topic.name not in context.deletions], mark=True
    ), results


def assign_missing_topic_ids(context: ControllerContext) -> Plan:
    """Topics that a broker of before topic ids created get theirs when a controller first meets them."""
    steps: list[Step] = []
    changed: list[tuple[TopicImage, TopicImage]] = []
    for topic in context.image.topics.values():
        if topic.topic_id == ZERO_ID:
            after = TopicImage(topic.name, context.new_id(), topic.partitions, topic.version + 1)
            steps.append(SetData(paths.topic(topic.name), topic_data(after), topic.version))
            changed.append((topic, after))
    return Plan(steps, ImageDelta(topics_changed=tuple(changed)))


def found_in_store(context: ControllerContext, found: Sequence[TopicImage], gone: Sequence[str] = ()) -> Plan:
    """Topics as the store has them now: created or grown by another broker or tool, or removed by hand.

    What they lack (an id, states) is for `assign_missing_topic_ids` and `brokers.repair`.
    """
    image = context.image
    created = tuple(topic for topic in found if image.topic(topic.name) is None)
    changed = tuple(
        (before, topic)
        for topic in found
        if (before := image.topic(topic.name)) is not None and before != topic and before.topic_id == topic.topic_id
    )
    # A topic with another id is another topic.
    replaced = tuple(
        (before, topic)
        for topic in found
        if (before := image.topic(topic.name)) is not None and before.topic_id != topic.topic_id
    )
    deleted = [topic for name in gone if (topic := image.topic(name)) is not None]
    delta = ImageDelta(
        topics_created=created,
        topics_changed=changed + replaced,
        topics_deleted=tuple(deleted),
        configs_deleted=tuple(topic_entity(topic.name) for topic in deleted),
    )
    known = [TopicPartition(new.name, index) for old, new in changed for index in range(len(new.partitions))]
    return Plan(delta=delta, requests=(RequestBatch(metadata=known),) if known else ())
