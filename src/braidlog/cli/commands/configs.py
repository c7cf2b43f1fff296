"""`braidlog configs describe|alter`: settings of topics, brokers and groups, and the log levels of brokers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Final

from braidlog.cli.command_tree import RESOURCE_SETTING, Placeholder
from braidlog.cli.options import add_connection, add_output, broker_number, connect, pairs
from braidlog.cli.output import report, show
from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.admin.configs import (
    Alter,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from braidlog.core.errors import UserError

SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC: "topic",
    ConfigSource.DYNAMIC_BROKER: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "cluster default",
    ConfigSource.STATIC_BROKER: "started with",
    ConfigSource.DEFAULT: "default",
    ConfigSource.DYNAMIC_BROKER_LOGGER: "logger",
    ConfigSource.GROUP: "group",
}
DYNAMIC: Final = (
    ConfigSource.DYNAMIC_TOPIC,
    ConfigSource.DYNAMIC_BROKER,
    ConfigSource.DYNAMIC_DEFAULT_BROKER,
    ConfigSource.DYNAMIC_BROKER_LOGGER,
    ConfigSource.GROUP,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    describe = verbs.add_parser("describe", help="settings with their sources")
    describe.add_argument("--all", action="store_true", help="also those at their defaults")
    describe.add_argument("--docs", action="store_true", help="say what each does")
    describe.set_defaults(run=run_describe)

    alter = verbs.add_parser("alter", help="change settings at run time")
    pair, key = Placeholder("KEY=VALUE", RESOURCE_SETTING), Placeholder("KEY", RESOURCE_SETTING)
    alter.add_argument("--set", action="append", default=[], metavar=pair, help="repeatable, as the others")
    alter.add_argument("--delete", action="append", default=[], metavar=key, help="back to the default")
    alter.add_argument("--append", action="append", default=[], metavar=pair, help="to a list setting")
    alter.add_argument("--subtract", action="append", default=[], metavar=pair, help="from a list setting")
    alter.add_argument("--validate-only", action="store_true", help="only check whether it could be done")
    alter.set_defaults(run=run_alter)

    for verb in (describe, alter):
        which = verb.add_mutually_exclusive_group(required=True)
        which.add_argument("--topic", metavar="TOPIC", help="settings of this topic")
        which.add_argument("--broker", metavar="ID", type=broker_number, help="settings of this broker")
        which.add_argument("--brokers", action="store_true", help="what holds for every broker")
        which.add_argument("--broker-loggers", metavar="ID", type=broker_number, help="log levels of this broker")
        which.add_argument("--group", metavar="GROUP", help="settings of this group")
        add_connection(verb)
        add_output(verb)


def run_describe(options: argparse.Namespace) -> int:
    resource = _resource(options)
    with connect(options) as cluster:
        described = admin_over(cluster).describe_configs([resource], documentation=options.docs)
    rows = [
        {
            "setting": config.name,
            "value": "(secret)" if config.is_sensitive else config.value,
            "source": SOURCES.get(config.source, "unknown"),
            "read_only": config.is_read_only,
            "synonyms": [f"{each.name}={each.value}" for each in config.synonyms],
            **({"doc": config.documentation} if options.docs else {}),
        }
        for config in described[resource].values()
        if options.all or config.source in DYNAMIC
    ]
    columns = ["setting", "value", "source", "read_only"] + (["doc"] if options.docs else [])
    show(rows, options.output, columns)
    return 0


def run_alter(options: argparse.Namespace) -> int:
    resource = _resource(options)
    changes = [ConfigChange(key, None, Alter.DELETE) for key in options.delete]
    for how, texts, option in (
        (Alter.SET, options.set, "--set"),
        (Alter.APPEND, options.append, "--append"),
        (Alter.SUBTRACT, options.subtract, "--subtract"),
    ):
        changes += [ConfigChange(key, value, how) for key, value in pairs(texts, option).items()]
    if not changes:
        raise UserError("nothing to change: give --set, --delete, --append or --subtract")
    with connect(options) as cluster:
        calls = admin_over(cluster)
        calls.alter_configs({resource: changes}, validate_only=options.validate_only).raise_for_errors()
    count = len(changes)
    verb = "could be changed" if options.validate_only else "changed"
    report(
        f"{count} setting{'' if count == 1 else 's'} of {resource} {verb}",
        {"of": str(resource), "settings": [change.name for change in changes], "changed": not options.validate_only},
        options.output,
    )
    return 0


def settings_of_topics(
    cluster: ClusterConnection, topics: Sequence[str], keys: Sequence[str] | None = None
) -> dict[str, dict[str, ConfigEntry]]:
    """By topic its settings by name."""
    resources = [ConfigResource.topic(name) for name in topics]
    found = admin_over(cluster).describe_configs(resources, names=keys).raise_for_errors()
    return {resource.name: entries for resource, entries in found.items()}


def overrides_among(entries: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """What a topic sets for itself."""
    return {name: entry.value for name, entry in entries.items() if entry.source == ConfigSource.DYNAMIC_TOPIC}


def _resource(options: argparse.Namespace) -> ConfigResource:
    if options.topic is not None:
        return ConfigResource.topic(options.topic)
    if options.group is not None:
        return ConfigResource.group(options.group)
    if options.broker_loggers is not None:
        return ConfigResource.broker_logger(options.broker_loggers)
    return ConfigResource.all_brokers() if options.brokers else ConfigResource.broker(options.broker)
