"""`braidlog topics create|list|describe|alter|delete`."""

from __future__ import annotations

import argparse
import os
from typing import Any

from braidlog.cli.options import (
    add_connection,
    add_output,
    broker_number,
    connect,
    pairs,
    partition_count,
    replication_factor,
)
from braidlog.cli.output import remark, remark_failure, report, show
from braidlog.client.admin.routing import Routing
from braidlog.client.admin.topics import NewPartitions, NewTopic, TopicCalls, TopicDescription, TopicId
from braidlog.config.topic_names import collisions, has_collision_characters
from braidlog.core.errors import UserError
from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import (
    InvalidPartitionsError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    create = verbs.add_parser("create", help="create a topic")
    create.add_argument("topic", metavar="TOPIC")
    create.add_argument("--partitions", type=partition_count, metavar="N", help="default: the broker's num.partitions")
    create.add_argument("--replication-factor", type=replication_factor, metavar="N", help="default: the broker's")
    create.add_argument(
        "--replica-assignment",
        metavar="1:2,2:3",
        type=_assignment,
        help="brokers of each partition, instead of the two numbers above",
    )
    create.add_argument(
        "--topic-config",
        "--config",
        dest="config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the topic",
    )
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
    alter.add_argument(
        "--partitions", type=partition_count, required=True, metavar="N", help="how many there shall be in all"
    )
    alter.add_argument(
        "--replica-assignment", metavar="1:2,2:3", type=_assignment, help="brokers of each added partition"
    )
    alter.add_argument("--if-exists", action="store_true", help="a missing topic is no error")
    alter.set_defaults(run=run_alter)

    delete = verbs.add_parser("delete", help="delete topics and all their records")
    delete.add_argument("topics", nargs="+", metavar="TOPIC")
    delete.add_argument("--if-exists", action="store_true", help="a missing topic is no error")
    delete.set_defaults(run=run_delete)

    for verb in (create, listing, describe, alter, delete):
        add_connection(verb, config_is_taken=verb is create)
        add_output(verb)


def run_create(options: argparse.Namespace) -> int:
    assigned: list[list[int]] = options.replica_assignment or []
    if assigned and (options.partitions is not None or options.replication_factor is not None):
        raise UserError("--replica-assignment says it all: leave out --partitions and --replication-factor")
    name: str = options.topic
    config = _topic_config(options)
    with connect(options) as cluster:
        calls = TopicCalls(Routing(cluster))
        _refuse_collisions(calls, name)
        wanted = NewTopic(name, options.partitions, options.replication_factor, config, assigned)
        try:
            created = calls.create_topics([wanted], validate_only=options.validate_only)[name]
        except TopicAlreadyExistsError:
            if not options.if_not_exists:
                raise
            report(f"topic {name} exists already", {"topic": name, "created": False}, options.output)
            return 0
    count = created.partitions or 1
    verb = "could be created" if options.validate_only else "created"
    row = {"topic": name, "created": not options.validate_only, "partitions": count}
    report(f"topic {name} {verb} with {count} partition{'' if count == 1 else 's'}", row, options.output)
    return 0


def _topic_config(options: argparse.Namespace) -> dict[str, str]:
    """Here --config is a setting of the topic, as in Kafka's own tool; what is no KEY=VALUE is a client's file."""
    files = [text for text in options.config if "=" not in text]
    for path in files:
        if not os.path.isfile(path):
            raise UserError(f"--config {path}: give KEY=VALUE, a setting of the topic; as a file there is no {path}")
    options.command_config = options.command_config or (files[-1] if files else None)
    return pairs([text for text in options.config if "=" in text], "--config")


def run_list(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        topics = TopicCalls(Routing(cluster)).list_topics(internal=not options.exclude_internal)
    rows = [
        {
            "topic": topic.name,
            "partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "internal": topic.is_internal,
        }
        for topic in topics
    ]
    show(rows, options.output, ("topic", "partitions", "replication_factor", "internal"))
    return 0


def run_describe(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        names = sorted(set(options.topics)) or None
        topics: list[TopicDescription] = []
        for found in TopicCalls(Routing(cluster)).describe_topics(names).outcomes.values():
            if isinstance(found, TopicDescription):
                topics.append(found)
            elif not (options.if_exists and isinstance(found, UnknownTopicOrPartitionError)):
                raise found
        # Only who asks for them pays for the import.
        from braidlog.cli.configs import overrides_of

        configs = overrides_of(cluster, [topic.name for topic in topics])
    described: list[dict[str, Any]] = []
    for topic in topics:
        rows = [row for row in _partition_rows(topic) if _is_wanted(row, options)]
        if rows or not (options.under_replicated or options.unavailable):
            described.append(_description(topic, configs[topic.name], rows))
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
    assigned: list[list[int]] = options.replica_assignment or []
    name: str = options.topic
    with connect(options) as cluster:
        calls = TopicCalls(Routing(cluster))
        try:
            topic = calls.describe_topics([name])[name]
        except UnknownTopicOrPartitionError:
            if not options.if_exists:
                raise
            report(f"there is no topic {name}", {"topic": name, "altered": False}, options.output)
            return 0
        if options.partitions <= len(topic.partitions):
            raise InvalidPartitionsError(
                f"topic {name} has {len(topic.partitions)} partitions already; the number can only grow"
            )
        calls.create_partitions({name: NewPartitions(options.partitions, assigned)}).raise_for_errors()
    row = {"topic": name, "altered": True, "partitions": options.partitions}
    report(f"topic {name} now has {options.partitions} partitions", row, options.output)
    return 0


def run_delete(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        outcomes = TopicCalls(Routing(cluster)).delete_topics(options.topics).outcomes
    failed = 0
    for name, problem in outcomes.items():
        row: dict[str, Any] = {"topic": name, "deleted": problem is None}
        if problem is None:
            report(f"topic {name} deleted", row, options.output)
        elif isinstance(problem, UnknownTopicOrPartitionError) and options.if_exists:
            report(f"there is no topic {name}", row, options.output)
        else:
            # The others were deleted all the same, so each is told of.
            remark_failure(problem)
            failed += 1
    return 1 if failed else 0


def _assignment(text: str) -> list[list[int]]:
    """The type of --replica-assignment."""
    try:
        return [[broker_number(broker) for broker in part.split(":")] for part in text.split(",")]
    except argparse.ArgumentTypeError as problem:
        raise argparse.ArgumentTypeError(f"{problem}; give broker ids as 1:2,2:3") from problem


def _refuse_collisions(calls: TopicCalls, name: str) -> None:
    if not has_collision_characters(name):
        return
    remark("metrics fold '.' and '_' of topic names into one: use only one of the two in your names")
    others = collisions(name, [topic.name for topic in calls.list_topics()])
    if others:
        raise UserError(f"topic {name} collides with {', '.join(others)} in the names of metrics; choose another name")


def _partition_rows(topic: TopicDescription) -> list[dict[str, Any]]:
    return [
        {
            "partition": partition.partition,
            "leader": partition.leader,
            "epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.in_sync),
            "offline": list(partition.offline) or None,
        }
        for partition in topic.partitions
    ]


def _is_wanted(row: dict[str, Any], options: argparse.Namespace) -> bool:
    if options.under_replicated and len(row["isr"]) >= len(row["replicas"]):
        return False
    return not options.unavailable or row["leader"] is None


def _description(
    topic: TopicDescription, configs: dict[str, str | None], partitions: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": str(topic.topic_id or TopicId(ZERO_ID)),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "config": configs,
        "partitions": partitions,
    }
