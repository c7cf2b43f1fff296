"""`braidlog configs describe|alter`: settings of topics and brokers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from braidlog.cli.options import add_connection, add_output, connect, not_negative, pairs
from braidlog.cli.output import report, show
from braidlog.client.cluster import Cluster
from braidlog.client.node import Node
from braidlog.client.refusals import check
from braidlog.core.errors import UserError
from braidlog.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

DESCRIBE_CONFIGS: Final = 32
INCREMENTAL_ALTER_CONFIGS: Final = 44
TOPIC: Final = 2
BROKER: Final = 4

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

DYNAMIC_TOPIC: Final = 1
SOURCES: Final = {
    DYNAMIC_TOPIC: "topic",
    2: "broker",
    3: "cluster default",
    4: "started with",
    5: "default",
    6: "logger",
}
DYNAMIC: Final = (1, 2, 3)
# Settings of so many topics are asked for at once.
_TOPICS_AT_ONCE: Final = 500

Resource = tuple[int, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    describe = verbs.add_parser("describe", help="settings with their sources")
    describe.add_argument("--all", action="store_true", help="also those at their defaults")
    describe.add_argument("--docs", action="store_true", help="say what each does")
    describe.set_defaults(run=run_describe)

    alter = verbs.add_parser("alter", help="change settings at run time")
    alter.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="repeatable, as the others")
    alter.add_argument("--delete", action="append", default=[], metavar="KEY", help="back to the default")
    alter.add_argument("--append", action="append", default=[], metavar="KEY=VALUE", help="to a list setting")
    alter.add_argument("--subtract", action="append", default=[], metavar="KEY=VALUE", help="from a list setting")
    alter.add_argument("--validate-only", action="store_true", help="only check whether it could be done")
    alter.set_defaults(run=run_alter)

    for verb in (describe, alter):
        which = verb.add_mutually_exclusive_group(required=True)
        which.add_argument("--topic", metavar="TOPIC", help="settings of this topic")
        which.add_argument("--broker", metavar="ID", type=not_negative, help="settings of this broker")
        which.add_argument("--brokers", action="store_true", help="what holds for every broker")
        add_connection(verb)
        add_output(verb)


def run_describe(options: argparse.Namespace) -> int:
    resource = _resource(options)
    with connect(options) as cluster:
        (result,) = describe_settings(_node_for(cluster, resource), [resource], docs=options.docs)
    rows = [
        {
            "setting": config.name,
            "value": "(secret)" if config.is_sensitive else config.value,
            "source": SOURCES.get(config.config_source, "unknown"),
            "read_only": config.read_only,
            "synonyms": [f"{each.name}={each.value}" for each in config.synonyms],
            **({"doc": config.documentation} if options.docs else {}),
        }
        for config in sorted(result.configs, key=lambda config: config.name)
        if options.all or config.config_source in DYNAMIC
    ]
    columns = ["setting", "value", "source", "read_only"] + (["doc"] if options.docs else [])
    show(rows, options.output, columns)
    return 0


def run_alter(options: argparse.Namespace) -> int:
    resource = _resource(options)
    changes = [AlterableConfig(name=key, config_operation=DELETE, value=None) for key in options.delete]
    for operation, texts, option in (
        (SET, options.set, "--set"),
        (APPEND, options.append, "--append"),
        (SUBTRACT, options.subtract, "--subtract"),
    ):
        for key, value in pairs(texts, option).items():
            changes.append(AlterableConfig(name=key, config_operation=operation, value=value))
    if not changes:
        raise UserError("nothing to change: give --set, --delete, --append or --subtract")
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=resource[0], resource_name=resource[1], configs=changes)],
        validate_only=options.validate_only,
    )
    with connect(options) as cluster:
        node = _node_for(cluster, resource)
        (result,) = node.call(INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse).responses
    check(result.error_code, _named(resource), result.error_message)
    count = len(changes)
    verb = "could be changed" if options.validate_only else "changed"
    report(
        f"{count} setting{'' if count == 1 else 's'} of {_named(resource)} {verb}",
        {"of": _named(resource), "settings": [change.name for change in changes], "changed": not options.validate_only},
        options.output,
    )
    return 0


def describe_settings(
    node: Node, resources: Sequence[Resource], *, keys: Sequence[str] | None = None, docs: bool = False
) -> list[DescribeConfigsResult]:
    """All settings, or only the named ones, of each resource, in their order."""
    asked = [
        DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
        )
        for kind, name in resources
    ]
    request = DescribeConfigsRequest(
        resources=asked,
        # Versions that cannot say them have them left out.
        include_synonyms=node.version_for(DESCRIBE_CONFIGS) >= 1,
        include_documentation=docs and node.version_for(DESCRIBE_CONFIGS) >= 3,
    )
    results = node.call(DESCRIBE_CONFIGS, request, DescribeConfigsResponse).results
    by_resource = {(result.resource_type, result.resource_name): result for result in results}
    answers = [by_resource[resource] for resource in resources]
    for resource, answer in zip(resources, answers, strict=True):
        check(answer.error_code, _named(resource), answer.error_message)
    return answers


def settings_of_topics(
    cluster: Cluster, topics: Sequence[str], keys: Sequence[str] | None = None
) -> dict[str, list[DescribeConfigsResourceResult]]:
    found: dict[str, list[DescribeConfigsResourceResult]] = {}
    for first in range(0, len(topics), _TOPICS_AT_ONCE):
        some = topics[first : first + _TOPICS_AT_ONCE]
        results = describe_settings(cluster.any, [(TOPIC, name) for name in some], keys=keys)
        found.update((result.resource_name, result.configs) for result in results)
    return found


def overrides_of(cluster: Cluster, topics: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """What topics set for themselves."""
    return {
        topic: {config.name: config.value for config in configs if config.config_source == DYNAMIC_TOPIC}
        for topic, configs in settings_of_topics(cluster, topics).items()
    }


def _resource(options: argparse.Namespace) -> Resource:
    if options.topic is not None:
        return TOPIC, options.topic
    return BROKER, "" if options.brokers else str(options.broker)


def _named(resource: Resource) -> str:
    kind, name = resource
    if kind == TOPIC:
        return f"topic {name}"
    return f"broker {name}" if name else "all brokers"


def _node_for(cluster: Cluster, resource: Resource) -> Node:
    """A broker's own settings are its own to tell; everything else any broker knows."""
    kind, name = resource
    return cluster.node(int(name)) if kind == BROKER and name else cluster.controller
