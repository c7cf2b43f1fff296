"""`braidlog quotas list|set|remove`: how much users, client ids and addresses may use of the brokers."""

from __future__ import annotations

import argparse
import math
from typing import Any, Final

from braidlog.cli.options import add_connection, add_output, byte_rate, connect, shortened
from braidlog.cli.output import report, show
from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.quotas import DEFAULT, Default, QuotaEntity, QuotaFilter, QuotaKey
from braidlog.core.errors import UserError

_KEYS: Final = tuple(key.value for key in QuotaKey)
_COLUMNS: Final = ("user", "client_id", "ip", "quota", "value")
_EPILOG: Final = """\
A quota is set for a user, a client id, a client id of a user, or an address; --user-default and the like are for all
that have none of their own. The most specific one counts: user and client id, user, client id.
Rates are of each broker. Sizes: 500kB, 1MB, 1MiB (a second).

examples:
  braidlog quotas set --user alice --produce-rate 1MB --fetch-rate 2MB
  braidlog quotas set --user alice --client-id importer --produce-rate 10MB
  braidlog quotas set --client-id-default --request-percentage 20
  braidlog quotas set --ip 10.0.0.7 --connection-rate 5
  braidlog quotas set --user alice producer_byte_rate=1048576          Kafka's names work as well
  braidlog quotas list --user alice
  braidlog quotas remove --user alice producer_byte_rate
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    listing = verbs.add_parser("list", help="which quotas are set")
    listing.set_defaults(run=run_list)

    setting = verbs.add_parser("set", help="set quotas; others of the same entity stay")
    setting.add_argument("--produce-rate", metavar="SIZE", type=byte_rate, help="bytes a second that may be produced")
    setting.add_argument("--fetch-rate", metavar="SIZE", type=byte_rate, help="bytes a second that may be fetched")
    setting.add_argument(
        "--request-percentage", metavar="N", type=number, help="of one thread's time, for handling requests"
    )
    setting.add_argument(
        "--mutation-rate", metavar="N", type=number, help="partitions created or deleted a second, on the controller"
    )
    setting.add_argument("--connection-rate", metavar="N", type=number, help="new connections a second, of addresses")
    setting.add_argument("settings", nargs="*", metavar="QUOTA=VALUE", help="by Kafka's name")
    setting.set_defaults(run=run_set)

    removal = verbs.add_parser("remove", help="take quotas away")
    removal.add_argument("quotas", nargs="*", metavar="QUOTA", help="only these, by Kafka's names (default: all)")
    removal.set_defaults(run=run_remove)

    for verb in (listing, setting, removal):
        _add_entity(verb)
        add_connection(verb)
        add_output(verb)


def _add_entity(verb: argparse.ArgumentParser) -> None:
    for option, metavar, what in (
        ("user", "USER", "user"),
        ("client-id", "CLIENT-ID", "client id"),
        ("ip", "ADDRESS", "address"),
    ):
        group = verb.add_mutually_exclusive_group()
        group.add_argument(f"--{option}", metavar=metavar, type=name_of, help=f"of this {what}")
        group.add_argument(
            f"--{option}-default", action="store_true", help=f"of every {what} that has no quota of its own"
        )


def name_of(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("a name has at least one character; --…-default is for all others")
    return text


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not a number from 0 on")
    return value


def run_list(options: argparse.Namespace) -> int:
    wanted = _entity(options)
    with connect(options) as cluster:
        found = admin_over(cluster).describe_client_quotas(QuotaFilter(*wanted))
    rows = [
        {**_named(entity), "quota": key, "value": value}
        for entity, quotas in sorted(found.items(), key=lambda each: _order(each[0]))
        for key, value in quotas.items()
    ]
    show(rows, options.output, _COLUMNS)
    return 0


def run_set(options: argparse.Namespace) -> int:
    entity = _one_entity(options)
    changes: dict[str, float | None] = {
        key: value
        for key, value in (
            (QuotaKey.PRODUCER_BYTE_RATE.value, options.produce_rate),
            (QuotaKey.CONSUMER_BYTE_RATE.value, options.fetch_rate),
            (QuotaKey.REQUEST_PERCENTAGE.value, options.request_percentage),
            (QuotaKey.CONTROLLER_MUTATION_RATE.value, options.mutation_rate),
            (QuotaKey.CONNECTION_CREATION_RATE.value, options.connection_rate),
        )
        if value is not None
    }
    for text in options.settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"{text}: give QUOTA=VALUE, such as producer_byte_rate=1048576")
        try:
            changes[_known(key)] = byte_rate(value) if key.endswith("byte_rate") else number(value)
        except argparse.ArgumentTypeError as problem:
            raise UserError(f"{key}: {problem}") from problem
    if not changes:
        raise UserError("nothing to set: give --produce-rate, --fetch-rate, … or QUOTA=VALUE")
    _alter(options, entity, changes)
    report(f"quotas of {entity} set", {**_named(entity), **changes}, options.output)
    return 0


def run_remove(options: argparse.Namespace) -> int:
    entity = _one_entity(options)
    keys = [_known(key) for key in options.quotas]
    with connect(options) as cluster:
        admin = admin_over(cluster)
        have = admin.describe_client_quotas(QuotaFilter(*entity, strict=True)).get(entity, {})
        missing = [key for key in keys if key not in have]
        if missing or not have:
            held = ", ".join(have) or "none"
            raise UserError(f"{entity} has no quota {missing[0] if missing else 'at all'}; it has: {held}")
        gone = keys or list(have)
        admin.alter_client_quotas({entity: dict.fromkeys(gone)}).raise_for_errors()
    report(f"removed {', '.join(gone)} of {entity}", {**_named(entity), "removed": gone}, options.output)
    return 0


def _alter(options: argparse.Namespace, entity: QuotaEntity, changes: dict[str, float | None]) -> None:
    with connect(options) as cluster:
        admin_over(cluster).alter_client_quotas({entity: changes}).raise_for_errors()


def _known(key: str) -> str:
    if key not in _KEYS:
        raise UserError(f"there is no quota {shortened(key)}; there are {', '.join(_KEYS)}")
    return key


def _entity(options: argparse.Namespace) -> QuotaEntity:
    return QuotaEntity(
        DEFAULT if options.user_default else options.user,
        DEFAULT if options.client_id_default else options.client_id,
        DEFAULT if options.ip_default else options.ip,
    )


def _one_entity(options: argparse.Namespace) -> QuotaEntity:
    entity = _entity(options)
    if entity == QuotaEntity():
        raise UserError("whose quota? give --user, --client-id or --ip, or --user-default and the like")
    if entity.ip is not None and (entity.user is not None or entity.client_id is not None):
        raise UserError("an address has quotas by itself: --ip goes without --user and --client-id")
    return entity


def _named(entity: QuotaEntity) -> dict[str, Any]:
    """None where the entity has no such part."""
    parts = {"user": entity.user, "client_id": entity.client_id, "ip": entity.ip}
    return {kind: "<default>" if isinstance(name, Default) else name for kind, name in parts.items()}


def _order(entity: QuotaEntity) -> list[tuple[bool, bool, str]]:
    return [(name is None, isinstance(name, Default), str(name)) for name in entity]
