"""`braidlog topics create|list|describe|alter|delete`."""

from __future__ import annotations

import argparse
from typing import Any

from braidlog.cli.options import add_connection, add_output, connect, pairs
from braidlog.cli.output import say, show
from braidlog.client.cluster import Cluster, check
from braidlog.config.topic_names import collisions, has_collision_characters
from braidlog.core.errors import UserError
from braidlog.core.ids import id_text
from braidlog.core.protocol_errors import (
    NONE,
    InvalidPartitionsError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
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
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from braidlog.wire.generated.metadata import MetadataResponseTopic

CREATE_TOPICS = 19
DELETE_TOPICS = 20
CREATE_PARTITIONS = 37


def add_parser(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    noun = nouns.add_parser("topics", help="create, list, describe, alter and delete topics", allow_abbrev=False)
    verbs = noun.add_subparsers(metavar="ACTION", required=True)

    create = verbs.add_parser("create", help="create a topic", allow_abbrev=False)
    create.add_argument("topic")
    create.add_argument("--partitions", type=int, metavar="N", help="default: the broker's num.partitions")
    create.add_argument("--replication-factor", type=int, metavar="N", help="default: the broker's")
    create.add_argument(
        "--replica-assignment", metavar="1:2,2:3", help="brokers of each partition, instead of the two numbers above"
    )
    create.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="a topic setting")
    create.add_argument("--if-not-exists", action="store_true", help="an existing topic is no error")
    create.add_argument("--validate-only", action="store_true", help="only check whether it could be created")
    create.set_defaults(run=run_create)

    listing = verbs.add_parser("list", help="names of all topics", allow_abbrev=False)
    listing.add_argument("--exclude-internal", action="store_true")
    listing.set_defaults(run=run_list)

    describe = verbs.add_parser("describe", help="partitions, leaders, replicas and settings", allow_abbrev=False)
    describe.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all")
    describe.set_defaults(run=run_describe)

    alter = verbs.add_parser("alter", help="raise the number of partitions", allow_abbrev=False)
    alter.add_argument("topic")
    alter.add_argument("--partitions", type=int, required=True, metavar="N")
    alter.add_argument("--replica-assignment", metavar="1:2,2:3", help="brokers of each added partition")
    alter.add_argument("--if-exists", action="store_true", help="a missing topic is no error")
    alter.set_defaults(run=run_alter)

    delete = verbs.add_parser("delete", help="delete topics and all their records", allow_abbrev=False)
    delete.add_argument("topics", nargs="+", metavar="TOPIC")
    delete.add_argument("--if-exists", action="store_true", help="a missing topic is no error")
    delete.set_defaults(run=run_delete)

    for parser in (create, listing, describe, alter, delete):
        add_connection(parser)
        add_output(parser)


def run_create(options: argparse.Namespace) -> int:
    assigned = _assignment(options.replica_assignment)
    if assigned and (options.partitions is not None or options.replication_factor is not None):
        raise UserError("--replica-assignment says it all: leave out --partitions and --replication-factor")
    configs = pairs(options.config, "--config")
    with connect(options) as cluster:
        _warn_of_collisions(cluster, options.topic, options.output)
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=options.topic,
                    num_partitions=-1 if options.partitions is None else options.partitions,
                    replication_factor=-1 if options.replication_factor is None else options.replication_factor,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                        for index, brokers in enumerate(assigned)
                    ],
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
                )
            ],
            timeout_ms=int(options.timeout * 1000),
            validate_only=options.validate_only,
        )
        (result,) = cluster.controller.call(CREATE_TOPICS, request, CreateTopicsResponse).topics
    if result.error_code == TopicAlreadyExistsError.code and options.if_not_exists:
        say(f"topic {options.topic} exists already", options.output)
        return 0
    check(result.error_code, f"topic {options.topic}", result.error_message)
    verb = "could be created" if options.validate_only else "created"
    say(f"topic {options.topic} {verb} with {result.num_partitions} partition(s)", options.output)
    return 0


def run_list(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        topics = sorted(cluster.metadata(None), key=lambda topic: topic.name or "")
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": len(topic.partitions[0].replica_nodes) if topic.partitions else 0,
            "internal": topic.is_internal,
        }
        for topic in topics
        if not (options.exclude_internal and topic.is_internal)
    ]
    show(rows, options.output, ("topic", "partitions", "replication_factor", "internal"))
    return 0


def run_describe(options: argparse.Namespace) -> int:
    from braidlog.cli.configs import overrides_of

    with connect(options) as cluster:
        topics = cluster.metadata(options.topics or None)
        for topic in topics:
            check(topic.error_code, f"topic {topic.name}")
        configs = {topic.name: overrides_of(cluster, topic.name or "") for topic in topics}
    if options.output == "json":
        show([_description(topic, configs[topic.name]) for topic in topics], "json")
        return 0
    for topic in sorted(topics, key=lambda topic: topic.name or ""):
        settings = ",".join(f"{key}={value}" for key, value in configs[topic.name].items()) or "-"
        print(f"Topic {topic.name}  id {id_text(topic.topic_id)}  partitions {len(topic.partitions)}  config {settings}")
        show(_partition_rows(topic), "table", ("partition", "leader", "epoch", "replicas", "isr", "offline"))
    return 0


def run_alter(options: argparse.Namespace) -> int:
    assigned = _assignment(options.replica_assignment)
    with connect(options) as cluster:
        (topic,) = cluster.metadata([options.topic])
        if topic.error_code == UnknownTopicOrPartitionError.code and options.if_exists:
            say(f"there is no topic {options.topic}", options.output)
            return 0
        check(topic.error_code, f"topic {options.topic}")
        if options.partitions <= len(topic.partitions):
            raise InvalidPartitionsError(
                f"topic {options.topic} has {len(topic.partitions)} partitions; the number can only grow"
            )
        wanted = CreatePartitionsTopic(
            name=options.topic,
            count=options.partitions,
            assignments=[CreatePartitionsAssignment(broker_ids=brokers) for brokers in assigned] or None,
        )
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=int(options.timeout * 1000))
        (result,) = cluster.controller.call(CREATE_PARTITIONS, request, CreatePartitionsResponse).results
    check(result.error_code, f"topic {options.topic}", result.error_message)
    say(f"topic {options.topic} now has {options.partitions} partitions", options.output)
    return 0


def run_delete(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        version = cluster.controller.version_for(DELETE_TOPICS)
        request = DeleteTopicsRequest(timeout_ms=int(options.timeout * 1000))
        if version >= 6:
            request.topics = [DeleteTopicState(name=name) for name in options.topics]
        else:
            request.topic_names = list(options.topics)
        results = cluster.controller.call(DELETE_TOPICS, request, DeleteTopicsResponse).responses
    for result in results:
        if result.error_code == UnknownTopicOrPartitionError.code and options.if_exists:
            say(f"there is no topic {result.name}", options.output)
            continue
        check(result.error_code, f"topic {result.name}", result.error_message)
        say(f"topic {result.name} deleted", options.output)
    return 0


def _assignment(text: str | None) -> list[list[int]]:
    if text is None:
        return []
    try:
        return [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError as problem:
        raise UserError(f"--replica-assignment {text}: give broker ids as 1:2,2:3") from problem


def _warn_of_collisions(cluster: Cluster, name: str, output: str) -> None:
    if not has_collision_characters(name):
        return
    others = collisions(name, [topic.name or "" for topic in cluster.metadata(None) if topic.error_code == NONE])
    if others:
        raise UserError(
            f"topic {name} would collide with {', '.join(others)} in metric names, where '.' and '_' are one; "
            "choose another name"
        )
    say("names with '.' and '_' can collide in metrics: use only one of the two", "json")


def _partition_rows(topic: MetadataResponseTopic) -> list[dict[str, Any]]:
    return [
        {
            "partition": partition.partition_index,
            "leader": partition.leader_id,
            "epoch": partition.leader_epoch,
            "replicas": partition.replica_nodes,
            "isr": partition.isr_nodes,
            "offline": partition.offline_replicas or None,
        }
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]


def _description(topic: MetadataResponseTopic, configs: dict[str, str | None]) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": id_text(topic.topic_id),
        "internal": topic.is_internal,
        "config": configs,
        "partitions": _partition_rows(topic),
    }
