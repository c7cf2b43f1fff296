"""`braidlog acls list|add|remove|explain`: who may do what to which topics, groups and other resources."""

from __future__ import annotations

import argparse
from typing import Any, Final

from braidlog.cli.acl_rules import OPERATION_NAMES, filters, new_rules, operation, pattern_type, principal, resources
from braidlog.cli.options import add_connection, add_output, connect
from braidlog.cli.output import confirm, remark, remark_failure, report, show
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.configs import ConfigResource
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclRules,
    PatternType,
    ResourcePattern,
    in_words,
    in_words_of,
    read_as,
    written,
)

_COLUMNS: Final = ("resource", "name", "pattern", "permission", "principal", "operation", "host")
_EPILOG: Final = """\
A rule that denies outweighs all that allow. Without a rule nobody may do anything but super users, who are named in the
brokers' settings (super.users). Rules about the name * are about every resource of the type; quote it for the shell.

examples:
  braidlog acls add --producer --topic orders --allow-principal User:shop
  braidlog acls add --consumer --topic orders --group billing --allow-principal User:billing
  braidlog acls add --operation Read --topic logs- --resource-pattern-type prefixed --allow-principal User:ops
  braidlog acls add --operation All --topic secrets --deny-principal 'User:*' --deny-host 10.0.0.7
  braidlog acls list --topic orders --resource-pattern-type match
  braidlog acls remove --topic orders --allow-principal User:shop
  braidlog acls explain --principal User:shop --operation Write --topic orders
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    listing = verbs.add_parser("list", help="which rules there are")
    _add_resources(listing)
    _add_pattern(listing, ("literal", "prefixed", "any", "match"))
    listing.add_argument(
        "--principal",
        action="append",
        default=[],
        type=principal,
        metavar="PRINCIPAL",
        help="only rules about this one, such as User:alice; may be repeated",
    )
    listing.set_defaults(run=run_list)

    add = verbs.add_parser("add", help="add rules; those that are there stay")
    _add_pattern(add, ("literal", "prefixed"))
    add.set_defaults(run=run_add)
    remove = verbs.add_parser("remove", help="remove rules: those that fit everything that is given")
    _add_pattern(remove, ("literal", "prefixed", "any", "match"))
    remove.add_argument("--yes", "--force", dest="yes", action="store_true", help="do not ask")
    remove.set_defaults(run=run_remove)
    for verb in (add, remove):
        _add_resources(verb)
        _add_rules(verb)

    explain = verbs.add_parser("explain", help="whether a principal may do something, and which rule decides")
    explain.add_argument("--principal", required=True, type=principal, metavar="PRINCIPAL", help="such as User:alice")
    _add_operation(explain, required=True, help="what it would do")
    explain.add_argument(
        "--host", default="*", metavar="ADDRESS", help="from where (default: where no rule names the host)"
    )
    _add_resources(explain)
    explain.set_defaults(run=run_explain)

    for verb in (listing, add, remove, explain):
        add_connection(verb)
        add_output(verb)


def _add_resources(parser: argparse.ArgumentParser) -> None:
    about = parser.add_argument_group("what it is about")
    for option, metavar, what in (
        ("--topic", "TOPIC", "a topic"),
        ("--group", "GROUP", "a group"),
        ("--transactional-id", "TRANSACTIONAL-ID", "a transactional id"),
        ("--delegation-token", "TOKEN-ID", "a delegation token"),
        ("--user-principal", "PRINCIPAL", "tokens of a user, such as User:alice"),
    ):
        about.add_argument(
            option, action="append", default=[], metavar=metavar, help=f"{what}, or * for all; may be repeated"
        )
    about.add_argument("--cluster", action="store_true", help="the cluster as a whole")


def _add_pattern(parser: argparse.ArgumentParser, choices: tuple[str, ...]) -> None:
    wider = "; any: of whatever kind; match: all that apply to a resource of the name" if "match" in choices else ""
    parser.add_argument(
        "--resource-pattern-type",
        choices=choices,
        type=pattern_type,
        default="literal",
        help=f"literal: the name itself; prefixed: names that begin so{wider} (default: %(default)s)",
    )


def _add_operation(parser: argparse.ArgumentParser, **settings: Any) -> None:
    parser.add_argument("--operation", type=operation, choices=OPERATION_NAMES, metavar="OPERATION", **settings)


def _add_rules(parser: argparse.ArgumentParser) -> None:
    for word in ("allow", "deny"):
        parser.add_argument(
            f"--{word}-principal",
            action="append",
            default=[],
            type=principal,
            metavar="PRINCIPAL",
            help=f"whom the rules {word} it, such as User:alice, or 'User:*' for all; may be repeated",
        )
        parser.add_argument(
            f"--{word}-host",
            action="append",
            default=[],
            metavar="ADDRESS",
            help="from where, an address or *; may be repeated (default: from everywhere)",
        )
    names = ", ".join(OPERATION_NAMES)
    _add_operation(parser, action="append", default=[], help=f"{names}; may be repeated (default: All)")
    parser.add_argument("--producer", action="store_true", help="what a producer needs of --topic, --transactional-id")
    parser.add_argument("--consumer", action="store_true", help="what a consumer needs of --topic and --group")
    parser.add_argument("--idempotent", action="store_true", help="with --producer: IdempotentWrite on the cluster")


def run_list(options: argparse.Namespace) -> int:
    wanted = PatternType[options.resource_pattern_type.upper()]
    about = [AclFilter(each.type, each.name, pattern_type=wanted) for each in resources(options)] or [AclFilter()]
    which = [each._replace(principal=name) for each in about for name in options.principal or [None]]
    with connect(options) as cluster:
        found = _found(admin_over(cluster), which)
    show([_row(acl) for acl in found], options.output, _COLUMNS)
    return 0


def run_add(options: argparse.Namespace) -> int:
    wanted = new_rules(options)
    with connect(options) as cluster:
        results = admin_over(cluster).create_acls(wanted)
    for problem in results.errors.values():
        remark_failure(problem)
    _report("added", [acl for acl in wanted if acl not in results.errors], options.output)
    return 1 if results.errors else 0


def run_remove(options: argparse.Namespace) -> int:
    which = filters(options)
    if which == [AclFilter()]:
        raise UserError("say which rules: what they are about (--topic, …), or whom (--allow-principal, …)")
    with connect(options) as cluster:
        admin = admin_over(cluster)
        found = _found(admin, which)
        if not found:
            remark("no rule fits; nothing was done")
            _report("removed", [], options.output)
            return 0
        if not options.yes:
            for acl in found:
                remark(in_words(acl))
        confirm(f"remove {len(found)} rule{'' if len(found) == 1 else 's'}", options.yes)
        # What was shown, and nothing that was added since.
        results = admin.delete_acls(found)
    for problem in results.errors.values():
        remark_failure(problem)
    _report("removed", [acl for acl in found if acl not in results.errors], options.output)
    return 1 if results.errors else 0


def run_explain(options: argparse.Namespace) -> int:
    named = resources(options)
    if len(named) != 1:
        raise UserError("explain takes one resource: --topic, --group, --cluster, --transactional-id, …")
    (resource,) = named
    asked = read_as(AclOperation, options.operation)
    assert asked is not None
    with connect(options) as cluster:
        admin = admin_over(cluster)
        about = AclFilter(resource.type, resource.name, pattern_type=PatternType.MATCH)
        acls = admin.describe_acls(about)
        known = _broker_settings(admin)
    super_users, everyone = known or (frozenset(), False)
    decision = AclRules(acls, super_users, allow_if_none_found=everyone).decide(
        options.principal, options.host, asked, resource
    )
    place = in_words_of(ResourcePattern(resource.type, resource.name, PatternType.LITERAL))
    where = "" if options.host == "*" else f" from {options.host}"
    text = f"{options.principal} may{'' if decision.allowed else ' not'} {written(asked)} {place}{where}: "
    text += f"{decision.reason}: {in_words(decision.rule)}" if decision.rule is not None else decision.reason
    row = {
        "principal": options.principal,
        "operation": written(asked),
        "resource": written(resource.type),
        "name": resource.name,
        "host": options.host,
        "allowed": decision.allowed,
        "reason": decision.reason,
        "rule": None if decision.rule is None else _row(decision.rule),
        "super_users_known": known is not None,
    }
    report(text, row, options.output)
    return 0


def _broker_settings(admin: Admin) -> tuple[frozenset[str], bool] | None:
    """super.users and allow.everyone.if.no.acl.found of a broker; None where it does not show them, as Kafka's."""
    names = ("super.users", "allow.everyone.if.no.acl.found")
    broker = min(each.broker_id for each in admin.describe_cluster().brokers)
    try:
        (found,) = admin.describe_configs([ConfigResource.broker(broker)], names=names).values()
    except ProtocolError as problem:
        remark(f"who is a super user is not known here: {problem.message} [{problem.name}]")
        return None
    users, everyone = (found[name].value if name in found else "" for name in names)
    if users is None or everyone is None:
        remark(f"who is a super user is not known here: broker {broker} does not show {' and '.join(names)}")
        return None
    return frozenset(filter(None, map(str.strip, users.split(";")))), everyone.strip().lower() == "true"


def _found(admin: Admin, which: list[AclFilter]) -> list[Acl]:
    """Each once, also where several filters fit it."""
    return sorted({acl for each in which for acl in admin.describe_acls(each)})


def _report(done: str, acls: list[Acl], output: str) -> None:
    if output == "json":
        show([_row(acl) for acl in acls], output)
        return
    for acl in acls:
        print(f"{done}: {in_words(acl)}")


def _row(acl: Acl) -> dict[str, Any]:
    return {
        "resource": written(acl.resource_type),
        "name": acl.resource_name,
        "pattern": written(acl.pattern_type),
        "permission": written(acl.permission),
        "principal": acl.principal,
        "operation": written(acl.operation),
        "host": acl.host,
    }
