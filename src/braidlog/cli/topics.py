"""`braidlog topics create|list|describe|alter|delete`."""

from __future__ import annotations

import argparse
from typing import Any, Final

from braidlog.cli.configs import overrides_of
from braidlog.cli.options import add_connection, add_output, connect, pairs, positive
from braidlog.cli.output import remark, report, show
from braidlog.client.cluster import Cluster
from braidlog.client.refusals import check, refusal
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

CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
CREATE_PARTITIONS: Final = 37
# The first version that lets the broker choose partitions and factor, and that answers with what it chose.
_CHOOSES: Final = 4
_ANSWERS_COUNT: Final = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    create = verbs.add_parser("create", help="create a topic")
    create.add_argument("topic", metavar="TOPIC")
    create.add_argument("--partitions", type=positive, metavar="N", help="default: the broker's num.partitions")
    create.add_argument("--replication-factor", type=positive, metavar="N", help="default: the broker's")
    create.add_argument(
        "--replica-assignment", metavar="1:2,2:3", help="brokers of each partition, instead of the two numbers above"
    )
    create.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="a topic setting")
    create.add_argument("--if-not-exists", action="store_true", help="an existing topic is no error")
    create.add_argument("--validate-only", action="store_true", help="only check whether it could be created")
    create.set_defaults(run=run_create)

    listing = verbs.add_parser("list", help="names of all topics")
    listing.add_argument("--exclude-internal", action="store_true", help="not the broker's own")
    listing.set_defaults(run=run_list)

    describe = verbs.add_parser("describe", help="partitions, leaders, replicas and settings")
    describe.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all")
    describe.add_argument("--if-exists", action="store_true", help="a missing topic is no error")
    describe.add_argument("--under-replicated", action="store_true", help="only partitions with replicas out of sync")
    describe.add_argument("--unavailable", action="store_true", help="only partitions without a leader")
    describe.set_defaults(run=run_describe)

    alter = verbs.add_parser("alter", help="raise the number of partitions")
    alter.add_argument("topic", metavar="TOPIC")
    alter.add_argument("--partitions", type=positive, required=True, metavar="N", help="how many there shall be in all")
    alter.add_argument("--replica-assignment", metavar="1:2,2:3", help="brokers of each added partition")
    alter.add_argument("--if-exists", action="store_true", help="a missing topic is no error")
    alter.set_defaults(run=run_alter)

    delete = verbs.add_parser("delete", help="delete topics and all their records")
    delete.add_argument("topics", nargs="+", metavar="TOPIC")
    delete.add_argument("--if-exists", action="store_true", help="a missing topic is no error")
    delete.set_defaults(run=run_delete)

    for verb in (create, listing, describe, alter, delete):
        add_connection(verb)
        add_output(verb)


def run_create(options: argparse.Namespace) -> int:
    assigned = _assignment(options.replica_assignment)
    if assigned and (options.partitions is not None or options.replication_factor is not None):
        raise UserError("--replica-assignment says it all: leave out --partitions and --replication-factor")
    name: str = options.topic
    with connect(options) as cluster:
        _refuse_collisions(cluster, name)
        controller = cluster.controller
        version = controller.version_for(CREATE_TOPICS)
        chosen = None if version >= _CHOOSES or assigned else 1
        wanted = CreatableTopic(
            name=name,
            num_partitions=options.partitions or chosen or -1,
            replication_factor=options.replication_factor or chosen or -1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in enumerate(assigned)
            ],
            configs=[
                CreatableTopicConfig(name=key, value=value) for key, value in pairs(options.config, "--config").items()
            ],
        )
        request = CreateTopicsRequest(
            topics=[wanted], timeout_ms=int(options.request_timeout * 1000), validate_only=options.validate_only
        )
        (result,) = controller.call(CREATE_TOPICS, request, CreateTopicsResponse).topics
    existed = result.error_code == TopicAlreadyExistsError.code and options.if_not_exists
    if existed:
        report(f"topic {name} exists already", {"topic": name, "created": False}, options.output)
        return 0
    check(result.error_code, f"topic {name}", result.error_message)
    count = result.num_partitions if version >= _ANSWERS_COUNT else len(assigned) or wanted.num_partitions
    verb = "could be created" if options.validate_only else "created"
    row = {"topic": name, "created": not options.validate_only, "partitions": count}
    report(f"topic {name} {verb} with {count} partition{'' if count == 1 else 's'}", row, options.output)
    return 0


def run_list(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        topics = _by_name(cluster.metadata(None))
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
    with connect(options) as cluster:
        topics = _by_name(cluster.metadata(options.topics or None))
        if options.if_exists:
            topics = [topic for topic in topics if topic.error_code != UnknownTopicOrPartitionError.code]
        for topic in topics:
            check(topic.error_code, f"topic {topic.name}")
        configs = overrides_of(cluster, [topic.name or "" for topic in topics])
    described: list[dict[str, Any]] = []
    for topic in topics:
        rows = [row for row in _partition_rows(topic) if _is_wanted(row, options)]
        if rows or not (options.under_replicated or options.unavailable):
            described.append(_description(topic, configs[topic.name or ""], rows))
    if options.output == "json":
        show(described, "json")
        return 0
    for number, each in enumerate(described):
        if number > 0:
            print()
        settings = ",".join(f"{key}={value}" for key, value in each["config"].items()) or "-"
        print(f"topic {each['topic']}  id {each['id']}  config {settings}")
        show(each["partitions"], "table", ("partition", "leader", "epoch", "replicas", "isr", "offline"))
    return 0


def run_alter(options: argparse.Namespace) -> int:
    assigned = _assignment(options.replica_assignment)
    name: str = options.topic
    with connect(options) as cluster:
        (topic,) = cluster.metadata([name])
        if topic.error_code == UnknownTopicOrPartitionError.code and options.if_exists:
            report(f"there is no topic {name}", {"topic": name, "altered": False}, options.output)
            return 0
        check(topic.error_code, f"topic {name}")
        if options.partitions <= len(topic.partitions):
            raise InvalidPartitionsError(
                f"topic {name} has {len(topic.partitions)} partitions already; the number can only grow"
            )
        wanted = CreatePartitionsTopic(
            name=name,
            count=options.partitions,
            assignments=[CreatePartitionsAssignment(broker_ids=brokers) for brokers in assigned] or None,
        )
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=int(options.request_timeout * 1000))
        (result,) = cluster.controller.call(CREATE_PARTITIONS, request, CreatePartitionsResponse).results
    check(result.error_code, f"topic {name}", result.error_message)
    row = {"topic": name, "altered": True, "partitions": options.partitions}
    report(f"topic {name} now has {options.partitions} partitions", row, options.output)
    return 0


def run_delete(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        controller = cluster.controller
        request = DeleteTopicsRequest(timeout_ms=int(options.request_timeout * 1000))
        names = list(dict.fromkeys(options.topics))
        if controller.version_for(DELETE_TOPICS) >= 6:
            request.topics = [DeleteTopicState(name=name) for name in names]
        else:
            request.topic_names = names
        results = controller.call(DELETE_TOPICS, request, DeleteTopicsResponse).responses
    failed = 0
    for result in results:
        row: dict[str, Any] = {"topic": result.name, "deleted": result.error_code == NONE}
        if result.error_code == NONE:
            report(f"topic {result.name} deleted", row, options.output)
        elif result.error_code == UnknownTopicOrPartitionError.code and options.if_exists:
            report(f"there is no topic {result.name}", row, options.output)
        else:
            # The others were deleted all the same, so each is told of.
            problem = refusal(result.error_code, f"topic {result.name}", result.error_message)
            remark(f"{problem.message} [{problem.name}]")
            failed += 1
    return 1 if failed else 0


def _assignment(text: str | None) -> list[list[int]]:
    if text is None:
        return []
    try:
        return [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError as problem:
        raise UserError(f"--replica-assignment {text}: give broker ids as 1:2,2:3") from problem


def _refuse_collisions(cluster: Cluster, name: str) -> None:
    if not has_collision_characters(name):
        return
    remark("metrics fold '.' and '_' of topic names into one: use only one of the two in your names")
    others = collisions(name, [topic.name or "" for topic in cluster.metadata(None) if topic.error_code == NONE])
    if others:
        raise UserError(f"topic {name} collides with {', '.join(others)} in the names of metrics; choose another name")


def _by_name(topics: list[MetadataResponseTopic]) -> list[MetadataResponseTopic]:
    return sorted(topics, key=lambda topic: topic.name or "")


def _partition_rows(topic: MetadataResponseTopic) -> list[dict[str, Any]]:
    return [
        {
            "partition": partition.partition_index,
            "leader": partition.leader_id if partition.leader_id >= 0 else None,
            "epoch": partition.leader_epoch,
            "replicas": partition.replica_nodes,
            "isr": partition.isr_nodes,
            "offline": partition.offline_replicas or None,
        }
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]


def _is_wanted(row: dict[str, Any], options: argparse.Namespace) -> bool:
    if options.under_replicated and len(row["isr"]) >= len(row["replicas"]):
        return False
    return not options.unavailable or row["leader"] is None


def _description(
    topic: MetadataResponseTopic, configs: dict[str, str | None], partitions: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": id_text(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "config": configs,
        "partitions": partitions,
    }
