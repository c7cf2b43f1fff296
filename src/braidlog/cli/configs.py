"""`braidlog configs describe|alter`: settings of topics and brokers."""

from __future__ import annotations

import argparse
from typing import Final

from braidlog.cli.options import add_connection, add_output, connect, pairs
from braidlog.cli.output import say, show
from braidlog.client.cluster import Cluster, check
from braidlog.client.node import Node
from braidlog.core.errors import UserError
from braidlog.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
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

SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "started with",
    5: "default",
    6: "logger",
}
DYNAMIC: Final = (1, 2, 3)


def add_parser(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    noun = nouns.add_parser("configs", help="read and change settings of topics and brokers", allow_abbrev=False)
    verbs = noun.add_subparsers(metavar="ACTION", required=True)

    describe = verbs.add_parser("describe", help="settings with their sources", allow_abbrev=False)
    describe.add_argument("--all", action="store_true", help="also those at their defaults")
    describe.add_argument("--docs", action="store_true", help="say what each does")
    describe.set_defaults(run=run_describe)

    alter = verbs.add_parser("alter", help="change settings at run time", allow_abbrev=False)
    alter.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    alter.add_argument("--delete", action="append", default=[], metavar="KEY", help="back to the default")
    alter.add_argument("--append", action="append", default=[], metavar="KEY=VALUE", help="to a list setting")
    alter.add_argument("--subtract", action="append", default=[], metavar="KEY=VALUE", help="from a list setting")
    alter.add_argument("--validate-only", action="store_true")
    alter.set_defaults(run=run_alter)

    for parser in (describe, alter):
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--topic", metavar="NAME")
        which.add_argument("--broker", metavar="ID")
        which.add_argument("--brokers", action="store_true", help="the default for every broker")
        add_connection(parser)
        add_output(parser)


def _resource(options: argparse.Namespace) -> tuple[int, str]:
    if options.topic is not None:
        return TOPIC, options.topic
    return BROKER, "" if options.brokers else options.broker


def _node_for(cluster: Cluster, resource: tuple[int, str]) -> Node:
    """A broker's own settings are its own to tell; everything else any broker knows."""
    kind, name = resource
    if kind == BROKER and name:
        if not name.isdigit():
            raise UserError(f"--broker {name}: give a broker's number")
        return cluster.node(int(name))
    return cluster.controller


def _describe(
    node: Node, resource: tuple[int, str], docs: bool = False
) -> list[DescribeConfigsResourceResult]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=resource[0], resource_name=resource[1], configuration_keys=None)
        ],
        include_synonyms=True,
        include_documentation=docs,
    )
    (result,) = node.call(DESCRIBE_CONFIGS, request, DescribeConfigsResponse).results
    check(result.error_code, f"settings of {resource[1] or 'all brokers'}", result.error_message)
    return result.configs


def overrides_of(cluster: Cluster, topic: str) -> dict[str, str | None]:
    """What a topic sets for itself."""
    return {
        config.name: config.value
        for config in _describe(cluster.any, (TOPIC, topic))
        if config.config_source in DYNAMIC[:1]
    }


def run_describe(options: argparse.Namespace) -> int:
    resource = _resource(options)
    with connect(options) as cluster:
        configs = _describe(_node_for(cluster, resource), resource, options.docs)
    rows = [
        {
            "setting": config.name,
            "value": "(secret)" if config.is_sensitive else config.value,
            "source": SOURCES.get(config.config_source, "unknown"),
            "read_only": config.read_only,
            "synonyms": [f"{each.name}={each.value}" for each in config.synonyms],
            **({"doc": config.documentation} if options.docs else {}),
        }
        for config in sorted(configs, key=lambda config: config.name)
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
    check(result.error_code, f"settings of {resource[1] or 'all brokers'}", result.error_message)
    say(f"{len(changes)} setting(s) of {resource[1] or 'all brokers'} changed", options.output)
    return 0
