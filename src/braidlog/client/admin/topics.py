"""Topics: made, listed, described, grown, deleted; by their names, or by their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import AnyBrokerStrategy, ControllerStrategy
from braidlog.client.admin.results import Results
from braidlog.client.arguments import Many, listed, mapped
from braidlog.client.broker_errors import broker_error
from braidlog.client.errors import ArgumentError
from braidlog.client.requests.metadata import METADATA, describe_topics_request, metadata_request
from braidlog.core.errors import UserError
from braidlog.core.ids import ZERO_ID, id_text, parse_id
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.security.acls import AclOperation, operations_of
from braidlog.wire.generated.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from braidlog.wire.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from braidlog.wire.generated.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
CREATE_PARTITIONS: Final = 37
# The first versions that let the broker choose partitions and factor, that answer with what it chose, and with ids.
_CHOOSES: Final = 4
_ANSWERS_COUNT: Final = 5
# The first version that knows of topic ids.
_DELETES_BY_ID: Final = 6
# A topic is a handful of partitions: so many are described, made or deleted by one request.
_AT_ONCE: Final = 1000


class TopicId(bytes):
    """The 16 bytes that tell a topic from an earlier one of the same name."""

    @classmethod
    def parse(cls, text: str) -> TopicId:
        """From the 22 characters that people see."""
        return cls(parse_id(text))

    def __str__(self) -> str:
        return id_text(self)

    def __repr__(self) -> str:
        return f"TopicId({id_text(self)})"


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be. Partitions and replication factor are the broker's choice where none is given.

    `assignment` names the brokers of each partition, in place of the two numbers.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str | None] = field(default_factory=dict)
    assignment: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions there shall be in all, and where those go that are new."""

    total: int
    assignment: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    # None of brokers that do not tell.
    topic_id: TopicId | None
    partitions: int | None
    replication_factor: int | None
    # Every setting that the topic has, not only its own.
    config: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class ListedTopic:
    name: str
    topic_id: TopicId | None
    is_internal: bool
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: int
    # None while there is none.
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: TopicId | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    # None unless they were asked for.
    authorized_operations: frozenset[AclOperation] | None = None


def create_topics(
    driver: AdminApiDriver, topics: Many[NewTopic | str], *, validate_only: bool = False
) -> Results[str, CreatedTopic]:
    given = [NewTopic(each) if isinstance(each, str) else each for each in listed(topics, "topics")]
    for topic in given:
        if not isinstance(topic, NewTopic):
            raise ArgumentError(f"topics: {topic!r} is no topic; give NewTopic(name, partitions=…), or a name")
    wanted = {topic.name: topic for topic in given}
    for topic in wanted.values():
        if topic.assignment and (topic.partitions is not None or topic.replication_factor is not None):
            raise UserError(f"topic {topic.name}: the assignment says it all; leave out partitions and factor")
    timeout_ms = driver.timeout_ms

    async def create(node: BrokerConnection, names: list[str]) -> dict[str, CreatedTopic | ProtocolError]:
        version = node.version_for(CREATE_TOPICS)
        request = CreateTopicsRequest(
            topics=[_creatable(wanted[name], version) for name in names],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )
        answered = (await node.call(CREATE_TOPICS, request, CreateTopicsResponse)).topics
        return {each.name: _created(each, wanted[each.name], version) for each in answered}

    return driver.ask(wanted, ControllerStrategy(), create, at_once=_AT_ONCE)


def delete_topics(driver: AdminApiDriver, topics: Many[str | TopicId]) -> Results[str | TopicId, None]:
    wanted = _topics(topics)
    timeout_ms = driver.timeout_ms

    async def delete(node: BrokerConnection, some: list[str | TopicId]) -> dict[str | TopicId, ProtocolError | None]:
        request = DeleteTopicsRequest(timeout_ms=timeout_ms)
        names = [each for each in some if isinstance(each, str)]
        if len(names) < len(some) or node.version_for(DELETE_TOPICS) >= _DELETES_BY_ID:
            request.topics = [
                DeleteTopicState(name=each) if isinstance(each, str) else DeleteTopicState(topic_id=bytes(each))
                for each in some
            ]
        else:
            request.topic_names = names
        found: dict[str | TopicId, ProtocolError | None] = {}
        for answer in (await node.call(DELETE_TOPICS, request, DeleteTopicsResponse)).responses:
            own_id = TopicId(answer.topic_id)
            # The answer to a name carries the id too, and the other way round.
            item: str | TopicId = own_id if own_id in some else answer.name or ""
            found[item] = _outcome(answer.error_code, f"topic {item}", answer.error_message)
        return found

    return driver.ask(wanted, ControllerStrategy(), delete, at_once=_AT_ONCE)


def create_partitions(
    driver: AdminApiDriver, totals: Mapping[str, int | NewPartitions], *, validate_only: bool = False
) -> Results[str, None]:
    mapped(totals, "totals", '{"orders": 12}')
    timeout_ms = driver.timeout_ms

    async def create(node: BrokerConnection, names: list[str]) -> dict[str, ProtocolError | None]:
        request = CreatePartitionsRequest(
            topics=[_grown(name, totals[name]) for name in names],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )
        answered = (await node.call(CREATE_PARTITIONS, request, CreatePartitionsResponse)).results
        return {each.name: _outcome(each.error_code, f"topic {each.name}", each.error_message) for each in answered}

    return driver.ask(totals, ControllerStrategy(), create, at_once=_AT_ONCE)


def list_topics(driver: AdminApiDriver, *, internal: bool = True) -> list[ListedTopic]:
    request = metadata_request(None, create_topics=False)
    where: AnyBrokerStrategy[str] = AnyBrokerStrategy()
    answer = driver.ask_one(where, lambda node: node.call(METADATA, request, MetadataResponse))
    return sorted(
        (_listed(topic) for topic in answer.topics if topic.error_code == NONE and (internal or not topic.is_internal)),
        key=lambda topic: topic.name,
    )


def describe_topics(
    driver: AdminApiDriver, topics: Many[str | TopicId] | None = None, *, authorized_operations: bool = False
) -> Results[str | TopicId, TopicDescription]:
    wanted = [topic.name for topic in list_topics(driver)] if topics is None else _topics(topics)

    async def describe(
        node: BrokerConnection, some: list[str | TopicId]
    ) -> dict[str | TopicId, TopicDescription | ProtocolError]:
        version = node.version_for(METADATA)
        found: dict[str | TopicId, TopicDescription | ProtocolError] = {}
        # A broker answers a request that mixes names and ids by the ids alone.
        for kind in (str, TopicId):
            asked = [each for each in some if isinstance(each, kind)]
            if not asked:
                continue
            request = describe_topics_request(version, asked, authorized_operations=authorized_operations)
            for topic in (await node.call(METADATA, request, MetadataResponse)).topics:
                item = (topic.name or "") if kind is str else TopicId(topic.topic_id)
                found[item] = _described(topic, item)
        return found

    return driver.ask(wanted, AnyBrokerStrategy(), describe, at_once=_AT_ONCE)


def _topics(given: Many[str | TopicId]) -> list[str | TopicId]:
    topics = listed(given, "topics")
    for topic in topics:
        if not isinstance(topic, str | TopicId):
            raise ArgumentError(f"topics: {topic!r} is no topic; give its name, or its TopicId")
    return topics


def _outcome(error_code: int, what: str, message: str | None) -> ProtocolError | None:
    return None if error_code == NONE else broker_error(error_code, what, message)


def _creatable(topic: NewTopic, version: int) -> CreatableTopic:
    unset = -1 if version >= _CHOOSES or topic.assignment else 1
    return CreatableTopic(
        name=topic.name,
        num_partitions=unset if topic.partitions is None else topic.partitions,
        replication_factor=unset if topic.replication_factor is None else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(topic.assignment)
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.config.items()],
    )


def _created(answer: CreatableTopicResult, asked: NewTopic, version: int) -> CreatedTopic | ProtocolError:
    if answer.error_code != NONE:
        return broker_error(answer.error_code, f"topic {answer.name}", answer.error_message)
    tells = version >= _ANSWERS_COUNT and answer.num_partitions >= 0
    return CreatedTopic(
        name=answer.name,
        topic_id=TopicId(answer.topic_id) if answer.topic_id != ZERO_ID else None,
        partitions=answer.num_partitions if tells else len(asked.assignment) or asked.partitions,
        replication_factor=answer.replication_factor if tells else asked.replication_factor,
        config={each.name: each.value for each in answer.configs or ()},
    )


def _grown(name: str, wanted: int | NewPartitions) -> CreatePartitionsTopic:
    grown = NewPartitions(wanted) if isinstance(wanted, int) else wanted
    assignments = [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in grown.assignment]
    return CreatePartitionsTopic(name=name, count=grown.total, assignments=assignments or None)


def _listed(topic: MetadataResponseTopic) -> ListedTopic:
    return ListedTopic(
        name=topic.name or "",
        topic_id=TopicId(topic.topic_id) if topic.topic_id != ZERO_ID else None,
        is_internal=topic.is_internal,
        partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replica_nodes) if topic.partitions else 0,
    )


def _described(topic: MetadataResponseTopic, item: str | TopicId) -> TopicDescription | ProtocolError:
    if topic.error_code != NONE:
        return broker_error(topic.error_code, f"topic {item}")
    return TopicDescription(
        name=topic.name or "",
        topic_id=TopicId(topic.topic_id) if topic.topic_id != ZERO_ID else None,
        is_internal=topic.is_internal,
        partitions=tuple(_partition(each) for each in sorted(topic.partitions, key=lambda each: each.partition_index)),
        authorized_operations=operations_of(topic.topic_authorized_operations),
    )


def _partition(partition: MetadataResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        partition=partition.partition_index,
        leader=partition.leader_id if partition.leader_id >= 0 else None,
        leader_epoch=partition.leader_epoch,
        replicas=tuple(partition.replica_nodes),
        in_sync=tuple(partition.isr_nodes),
        offline=tuple(partition.offline_replicas),
    )
