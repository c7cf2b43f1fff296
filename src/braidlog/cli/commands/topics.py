"""`braidlog topics create|list|describe|offsets|alter|delete`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from braidlog.cli.command_tree import TOPIC_SETTING, Placeholder
from braidlog.cli.options import (
    add_connection,
    add_output,
    broker_number,
    connect,
    pairs,
    partition_count,
    replication_factor,
    timestamp_ms,
)
from braidlog.cli.output import remark, remark_failure, report, show, size_text
from braidlog.cli.replica_states import broker_logs, replica_states, states_text
from braidlog.cli.topic_selection import moment, selected_partitions, topic_selection
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.records import IsolationLevel, ListedOffset, OffsetSpec
from braidlog.client.admin.results import Results
from braidlog.client.admin.topics import NewPartitions, NewTopic, PartitionDescription, TopicDescription, TopicId
from braidlog.config.topic_names import collisions, has_collision_characters
from braidlog.core.errors import UserError
from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import (
    InvalidPartitionsError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import TopicPartition

if TYPE_CHECKING:
    from braidlog.client.admin.configs import ConfigEntry

_MIN_ISR: Final = "min.insync.replicas"
# A broker that has died is registered until its session ends, and does not say whether it has a log.
_LOGS_WITHIN_S: Final = 5.0
_DESCRIBE_EPILOG: Final = """\
STATES has the state of every replica: online (in sync), not in sync, missing (its broker is up and has no log of it),
offline (its broker or the log's directory). Of several of the options that choose partitions all have to hold.

examples:
  braidlog topics describe orders
  braidlog topics describe --under-replicated
  braidlog topics describe --under-min-isr                 which refuse acks=all now
  braidlog topics describe --at-min-isr                    which will, if one more replica falls out of sync
"""
_OFFSETS_EPILOG: Final = """\
EARLIEST is the offset of the first record that is there, LATEST the one that the next record will get; RECORDS lies
between the two, and is more than there are where a topic is compacted or written in transactions.

examples:
  braidlog topics offsets orders users:0
  braidlog topics offsets orders --at 2024-05-01T12:00:00Z --output json
"""


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
    create.add_argument("--disable-rack-aware", action="store_true", help="spread replicas without a look at racks")
    create.add_argument(
        "--topic-config",
        "--config",
        dest="config",
        action="append",
        default=[],
        metavar=Placeholder("KEY=VALUE", TOPIC_SETTING),
        help="a setting of the topic",
    )
    create.add_argument("--if-not-exists", action="store_true", help="an existing topic is no error")
    create.add_argument("--validate-only", action="store_true", help="only check whether it could be created")
    create.set_defaults(run=run_create)

    listing = verbs.add_parser("list", help="names of all topics")
    listing.add_argument("--exclude-internal", action="store_true", help="not the broker's own")
    listing.add_argument("--sizes", action="store_true", help="also how much room all replicas take")
    listing.set_defaults(run=run_list)

    describe = verbs.add_parser("describe", help="partitions, leaders, settings, and the state of every replica")
    describe.epilog = _DESCRIBE_EPILOG
    describe.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all")
    describe.add_argument("--if-exists", action="store_true", help="a missing topic is no error")
    describe.add_argument("--under-replicated", action="store_true", help="only partitions with replicas out of sync")
    describe.add_argument(
        "--under-min-isr", action="store_true", help="only partitions with fewer in sync than min.insync.replicas"
    )
    describe.add_argument(
        "--at-min-isr", action="store_true", help="only partitions with exactly min.insync.replicas in sync"
    )
    describe.add_argument("--unavailable", action="store_true", help="only partitions without a leader that is up")
    describe.add_argument("--sizes", action="store_true", help="also how much room all replicas of a partition take")
    describe.set_defaults(run=run_describe)

    offsets = verbs.add_parser("offsets", help="where partitions start and end, and their offset at a time")
    offsets.epilog = _OFFSETS_EPILOG
    offsets.add_argument(
        "topics", nargs="+", metavar="TOPIC", type=topic_selection, help="all of its partitions, or TOPIC:0,1 these"
    )
    offsets.add_argument(
        "--at", metavar="TIME", type=timestamp_ms, help="also the first record at or after a time: ISO 8601"
    )
    offsets.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed: the end is before the first open transaction",
    )
    offsets.set_defaults(run=run_offsets)

    alter = verbs.add_parser("alter", help="raise the number of partitions")
    alter.add_argument("topic", metavar="TOPIC")
    alter.add_argument(
        "--partitions", type=partition_count, required=True, metavar="N", help="how many there shall be in all"
    )
    alter.add_argument(
        "--replica-assignment", metavar="1:2,2:3", type=_assignment, help="brokers of each added partition"
    )
    alter.add_argument("--disable-rack-aware", action="store_true", help="spread new replicas without a look at racks")
    alter.add_argument("--if-exists", action="store_true", help="a missing topic is no error")
    alter.set_defaults(run=run_alter)

    delete = verbs.add_parser("delete", help="delete topics and all their records")
    delete.add_argument("topics", nargs="+", metavar="TOPIC")
    delete.add_argument("--if-exists", action="store_true", help="a missing topic is no error")
    delete.set_defaults(run=run_delete)

    for verb in (create, listing, describe, offsets, alter, delete):
        add_connection(verb, config_is_taken=verb is create)
        add_output(verb)


def run_create(options: argparse.Namespace) -> int:
    assigned: list[list[int]] = options.replica_assignment or []
    if assigned and (options.partitions is not None or options.replication_factor is not None):
        raise UserError("--replica-assignment says it all: leave out --partitions and --replication-factor")
    name: str = options.topic
    config = _topic_config(options)
    with connect(options) as cluster:
        calls = admin_over(cluster)
        _refuse_collisions(calls, name)
        if options.disable_rack_aware and not assigned:
            assigned = _without_racks(calls, name, options.partitions, options.replication_factor)
            wanted = NewTopic(name, config=config, assignment=assigned)
        else:
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


def _without_racks(
    calls: Admin,
    name: str,
    partitions: int | None,
    factor: int | None,
    *,
    existing: int = 0,
    leader_of_first: int | None = None,
) -> list[list[int]]:
    """Where new partitions go if racks do not count. Brokers always look at racks, so that it is decided here."""
    # Only who asks for it pays for the imports.
    import random

    from braidlog.client.admin.configs import ConfigResource
    from braidlog.controller.placement import assign

    brokers = [each.broker_id for each in calls.describe_cluster().brokers]
    if partitions is None or factor is None:
        # What the broker would choose.
        resource = ConfigResource.broker(brokers[0])
        names = ("num.partitions", "default.replication.factor")
        defaults = calls.describe_configs([resource], names=names, synonyms=False)[resource]
        partitions = int(defaults[names[0]].value or 1) if partitions is None else partitions
        factor = int(defaults[names[1]].value or 1) if factor is None else factor
    assigned = assign(
        partitions - existing,
        factor,
        dict.fromkeys(brokers),
        # The same topic goes to the same brokers if it is tried again.
        random.Random(name),
        first_partition=existing,
        leader_of_first=leader_of_first,
    )
    return [list(each) for each in assigned]


def run_list(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        topics = admin_over(cluster).list_topics(internal=not options.exclude_internal)
        sizes: dict[str, int] = {}
        for place, size in _sizes(admin_over(cluster)).items() if options.sizes else ():
            sizes[place.topic] = sizes.get(place.topic, 0) + size
    rows = [
        {
            "topic": topic.name,
            "partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "internal": topic.is_internal,
            **(_size(sizes.get(topic.name), options) if options.sizes else {}),
        }
        for topic in topics
    ]
    columns = ("topic", "partitions", "replication_factor", "internal")
    show(rows, options.output, (*columns, "size") if options.sizes else columns)
    return 0


def run_describe(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        admin = admin_over(cluster)
        names = sorted(set(options.topics)) or None
        topics: list[TopicDescription] = []
        for found in admin.describe_topics(names).outcomes.values():
            if isinstance(found, TopicDescription):
                topics.append(found)
            elif not (options.if_exists and isinstance(found, UnknownTopicOrPartitionError)):
                raise found
        # Only who asks for them pays for the import.
        from braidlog.cli.commands.configs import overrides_among, settings_of_topics

        configs = settings_of_topics(cluster, [topic.name for topic in topics])
        up = {each.broker_id for each in admin.describe_cluster().brokers}
        chosen = {
            topic.name: [each for each in topic.partitions if _is_wanted(each, up, configs[topic.name], options)]
            for topic in topics
        }
        places = [TopicPartition(name, each.partition) for name, some in chosen.items() for each in some]
        holders = {broker for some in chosen.values() for each in some for broker in each.replicas if broker in up}
        asking = admin.within(min(cluster.timeout_s, _LOGS_WITHIN_S))
        logs, _ = broker_logs(asking, holders, places) if holders else ({}, set())
        sizes = _sizes(admin, places) if options.sizes else {}
    described: list[dict[str, Any]] = []
    for topic in topics:
        rows = [_partition_row(each, replica_states(topic.name, each, up, logs)) for each in chosen[topic.name]]
        if options.sizes:
            for row in rows:
                row |= _size(sizes.get(TopicPartition(topic.name, row["partition"])), options)
        if rows or not _chooses(options):
            described.append(_description(topic, overrides_among(configs[topic.name]), rows))
    if options.output == "json":
        show(described, "json")
        return 0
    for number, each in enumerate(described):
        if number > 0:
            print()
        settings = ",".join(f"{key}={value}" for key, value in each["config"].items()) or "-"
        print(f"topic {each['topic']}  id {each['id']}  config {settings}")
        columns = ("partition", "leader", "epoch", "replicas", "isr", "states")
        rows = [{**row, "states": states_text(row["states"])} for row in each["partitions"]]
        show(rows, "table", (*columns, "size") if options.sizes else columns)
    return 0


def _sizes(admin: Admin, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, int]:
    """Bytes of partitions, all their replicas together; of brokers that cannot be asked only a remark tells."""
    sizes: dict[TopicPartition, int] = {}
    described = admin.describe_log_dirs(partitions=partitions)
    for problem in described.errors.values():
        remark_failure(problem)
    for directories in described.succeeded.values():
        for directory in directories:
            for place, replica in directory.replicas.items():
                sizes[place] = sizes.get(place, 0) + replica.size_bytes
    return sizes


def _size(size: int | None, options: argparse.Namespace) -> dict[str, Any]:
    """None where no broker said."""
    return {"size_bytes": size} if options.output == "json" else {"size": size_text(size)}


def run_offsets(options: argparse.Namespace) -> int:
    isolation = IsolationLevel[options.isolation.upper()]
    with connect(options) as cluster:
        partitions = selected_partitions(cluster, options.topics)
        records = admin_over(cluster)

        def listed(spec: int) -> Results[TopicPartition, ListedOffset]:
            return records.list_offsets(dict.fromkeys(partitions, spec), isolation=isolation)

        earliest, latest = listed(OffsetSpec.EARLIEST), listed(OffsetSpec.LATEST)
        at_time = None if options.at is None else listed(options.at)
    failed = {**earliest.errors, **latest.errors, **({} if at_time is None else at_time.errors)}
    rows: list[dict[str, Any]] = []
    for place in partitions:
        if place in failed:
            # The others are shown all the same.
            remark_failure(failed[place])
            continue
        start, end = earliest[place].offset, latest[place].offset
        row = {
            "topic": place.topic,
            "partition": place.partition,
            "earliest": start,
            "latest": end,
            "records": max(end - start, 0),
        }
        rows.append(row if at_time is None else row | _at_time(at_time[place], options.output))
    columns = ("topic", "partition", "earliest", "latest", "records")
    show(rows, options.output, columns if at_time is None else (*columns, "offset_at", "timestamp"))
    return 1 if failed else 0


def _at_time(listed: ListedOffset, output: str) -> dict[str, Any]:
    """None where no record is that young."""
    offset_at = listed.offset if listed.offset >= 0 else None
    if output == "json":
        return {"offset_at": offset_at, "timestamp_ms": listed.timestamp_ms if listed.timestamp_ms >= 0 else None}
    return {"offset_at": offset_at, "timestamp": moment(listed.timestamp_ms)}


def run_alter(options: argparse.Namespace) -> int:
    assigned: list[list[int]] = options.replica_assignment or []
    name: str = options.topic
    with connect(options) as cluster:
        calls = admin_over(cluster)
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
        if options.disable_rack_aware and not assigned:
            first = topic.partitions[0].replicas
            assigned = _without_racks(
                calls, name, options.partitions, len(first), existing=len(topic.partitions), leader_of_first=first[0]
            )
        calls.create_partitions({name: NewPartitions(options.partitions, assigned)}).raise_for_errors()
    row = {"topic": name, "altered": True, "partitions": options.partitions}
    report(f"topic {name} now has {options.partitions} partitions", row, options.output)
    return 0


def run_delete(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        outcomes = admin_over(cluster).delete_topics(options.topics).outcomes
    failed = 0
    for name, problem in outcomes.items():
        row: dict[str, Any] = {"topic": name, "deleted": problem is None}
        if problem is None:
            report(f"topic {name} deleted", row, options.output)
        elif isinstance(problem, UnknownTopicOrPartitionError) and options.if_exists:
            report(f"there is no topic {name}", row, options.output)
        else:
            # The others were deleted all the same, so each is reported.
            remark_failure(problem)
            failed += 1
    return 1 if failed else 0


def _assignment(text: str) -> list[list[int]]:
    """The type of --replica-assignment."""
    try:
        return [[broker_number(broker) for broker in part.split(":")] for part in text.split(",")]
    except argparse.ArgumentTypeError as problem:
        raise argparse.ArgumentTypeError(f"{problem}; give broker ids as 1:2,2:3") from problem


def _refuse_collisions(calls: Admin, name: str) -> None:
    if not has_collision_characters(name):
        return
    remark("metrics fold '.' and '_' of topic names into one: use only one of the two in your names")
    others = collisions(name, [topic.name for topic in calls.list_topics()])
    if others:
        raise UserError(f"topic {name} collides with {', '.join(others)} in the names of metrics; choose another name")


def _partition_row(partition: PartitionDescription, states: dict[int, str]) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "leader": partition.leader,
        "epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.in_sync),
        "offline": list(partition.offline) or None,
        "states": [{"broker": broker, "state": state} for broker, state in states.items()],
    }


def _chooses(options: argparse.Namespace) -> bool:
    return bool(options.under_replicated or options.under_min_isr or options.at_min_isr or options.unavailable)


def _is_wanted(
    partition: PartitionDescription,
    up: Collection[int],
    settings: Mapping[str, ConfigEntry],
    options: argparse.Namespace,
) -> bool:
    in_sync, min_isr = len(partition.in_sync), _min_isr(settings)
    if options.under_replicated and in_sync >= len(partition.replicas):
        return False
    if options.under_min_isr and in_sync >= min_isr:
        return False
    if options.at_min_isr and in_sync != min_isr:
        return False
    return not options.unavailable or partition.leader is None or partition.leader not in up


def _min_isr(settings: Mapping[str, ConfigEntry]) -> int:
    """1, Kafka's default, where the broker does not tell."""
    found = settings.get(_MIN_ISR)
    return int(found.value) if found is not None and found.value is not None else 1


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
