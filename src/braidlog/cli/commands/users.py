"""`braidlog users list|create|alter|delete`: who may log in with SCRAM, and with which password."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from pathlib import Path
from typing import Any, Final

from braidlog.cli.options import add_connection, add_output, connect, whole_number
from braidlog.cli.output import remark_failure, report, show
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.scram import ScramDeletion, ScramMechanism, ScramUpsertion
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import ResourceNotFoundError

_MECHANISMS: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_NAMES: Final = {mechanism: name for name, mechanism in _MECHANISMS.items()}
_EPILOG: Final = """\
The password is asked for, or read from a file or an environment variable; it is never part of the command, which others
on the machine see. It is salted here: the broker gets what checks a password, not the password.

examples:
  braidlog users create alice
  braidlog users create alice --mechanism SCRAM-SHA-256 --password-file alice.secret
  ALICE=… braidlog users alter alice --password-env ALICE
  braidlog users delete alice
  braidlog users create broker --zookeeper z1:2181/kafka        before any broker runs, which logs in as that user
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    listing = verbs.add_parser("list", help="who has a password, for which mechanism")
    listing.add_argument("users", nargs="*", metavar="USER", help="only these (default: all)")
    listing.set_defaults(run=run_list)

    create = verbs.add_parser("create", help="give a new user a password")
    create.set_defaults(run=run_create)
    alter = verbs.add_parser("alter", help="give a user another password")
    alter.set_defaults(run=run_alter)
    for verb in (create, alter):
        verb.add_argument("user", metavar="USER")
        verb.add_argument(
            "--mechanism", choices=tuple(_MECHANISMS), default="SCRAM-SHA-512", help="(default: %(default)s)"
        )
        verb.add_argument(
            "--iterations", type=iterations, default=4096, metavar="N", help="4096 to 16384 (default: %(default)s)"
        )
        secret = verb.add_mutually_exclusive_group()
        secret.add_argument("--password-file", metavar="FILE", help="its first line is the password")
        secret.add_argument("--password-env", metavar="NAME", help="the environment variable with the password")
        verb.add_argument(
            "--zookeeper",
            metavar="HOST:PORT[/PATH]",
            help="write to ZooKeeper, as zookeeper.connect names it; for what brokers need to log in to each other",
        )
        verb.add_argument(
            "--zookeeper-config",
            metavar="FILE",
            help="a broker's settings, for how to reach a ZooKeeper that is secured",
        )

    delete = verbs.add_parser("delete", help="take a user's passwords away")
    delete.add_argument("user", metavar="USER")
    delete.add_argument("--mechanism", choices=tuple(_MECHANISMS), help="only this one's (default: all)")
    delete.add_argument("--if-exists", action="store_true", help="no error where there is no such user")
    delete.set_defaults(run=run_delete)

    for verb in (listing, create, alter, delete):
        add_connection(verb)
        add_output(verb)


def iterations(text: str) -> int:
    return whole_number(text, 4096, 16384, "a number of iterations")


def run_list(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        found = admin_over(cluster).describe_scram_users(options.users or None)
    rows: list[dict[str, Any]] = []
    for user, credentials in found.succeeded.items():
        rows += (
            {"user": user, "mechanism": _NAMES.get(each.mechanism), "iterations": each.iterations}
            for each in credentials
        )
    for problem in found.errors.values():
        remark_failure(problem)
    show(rows, options.output, ("user", "mechanism", "iterations"))
    return 1 if found.errors else 0


def run_create(options: argparse.Namespace) -> int:
    return _set_password(options, is_new=True)


def run_alter(options: argparse.Namespace) -> int:
    return _set_password(options, is_new=False)


def _set_password(options: argparse.Namespace, *, is_new: bool) -> int:
    if options.zookeeper:
        _set_in_zookeeper(options, is_new)
    elif options.zookeeper_config:
        raise UserError("--zookeeper-config goes with --zookeeper HOST:PORT")
    else:
        _set_through_broker(options, is_new)
    what = "created" if is_new else "changed"
    row = {"user": options.user, "mechanism": options.mechanism, "iterations": options.iterations}
    report(f"user {options.user} {what} ({options.mechanism})", row, options.output)
    return 0


def _set_through_broker(options: argparse.Namespace, is_new: bool) -> None:
    mechanism = _MECHANISMS[options.mechanism]
    with connect(options) as cluster:
        admin = admin_over(cluster)
        _check_new(options, is_new, mechanism in _mechanisms_of(admin, options.user))
        change = ScramUpsertion(options.user, _password(options), mechanism, options.iterations)
        admin.alter_scram_users([change]).raise_for_errors()


def _set_in_zookeeper(options: argparse.Namespace, is_new: bool) -> None:
    # What only this needs of a broker's code is imported here.
    from braidlog.cli.zookeeper_session import StoredUsers

    mechanism = int(_MECHANISMS[options.mechanism])
    stored = StoredUsers(options.zookeeper, options.zookeeper_config)
    _check_new(options, is_new, mechanism in stored.mechanisms_of(options.user))
    stored.set_password(options.user, _password(options), mechanism, options.iterations)


def _check_new(options: argparse.Namespace, is_new: bool, has_one: bool) -> None:
    if is_new and has_one:
        raise UserError(
            f"user {options.user} has a password for {options.mechanism}; `braidlog users alter` changes it"
        )
    if not is_new and not has_one:
        raise UserError(
            f"user {options.user} has no password for {options.mechanism}; `braidlog users create` gives it one"
        )


def run_delete(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        admin = admin_over(cluster)
        found = _mechanisms_of(admin, options.user)
        wanted = [_MECHANISMS[options.mechanism]] if options.mechanism else sorted(found)
        if not wanted or not found.issuperset(wanted):
            if options.if_exists:
                report(f"there is no user {options.user}", {"user": options.user, "deleted": False}, options.output)
                return 0
            held = ", ".join(_NAMES[each] for each in sorted(found)) or "none"
            raise UserError(f"user {options.user} has no such password to delete; it has: {held}")
        admin.alter_scram_users([ScramDeletion(options.user, each) for each in wanted]).raise_for_errors()
    report(f"user {options.user} deleted", {"user": options.user, "deleted": True}, options.output)
    return 0


def _mechanisms_of(admin: Admin, user: str) -> set[ScramMechanism]:
    found = admin.describe_scram_users([user])
    problem = found.errors.get(user)
    if problem is None:
        return {each.mechanism for each in found[user]}
    if isinstance(problem, ResourceNotFoundError):
        return set()
    raise problem


def _password(options: argparse.Namespace) -> str:
    if options.password_file:
        try:
            password = Path(options.password_file).read_text(encoding="utf-8").split("\n", 1)[0].rstrip("\r")
        except (OSError, UnicodeDecodeError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is no text in UTF-8"
            raise UserError(f"--password-file {options.password_file}: {reason}") from problem
    elif options.password_env:
        password = os.environ.get(options.password_env, "")
    elif sys.stdin.isatty():
        password = getpass.getpass(f"password of {options.user}: ")
        if password != getpass.getpass("the same again: "):
            raise UserError("the two passwords differ; nothing was changed")
    else:
        raise UserError("no terminal to ask for the password: give --password-file FILE or --password-env NAME")
    if not password:
        raise UserError("the password is empty; nothing was changed")
    return password
