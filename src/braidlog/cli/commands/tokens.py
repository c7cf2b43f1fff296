"""`braidlog tokens list|create|renew|expire`: delegation tokens, with which programs log in in a user's name."""

from __future__ import annotations

import argparse
from base64 import b64encode
from typing import Any, Final

from braidlog.cli.options import add_connection, add_output, connect
from braidlog.cli.output import report, show, show_one
from braidlog.cli.reset_plan import duration_ms
from braidlog.cli.topic_selection import moment
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.delegation_tokens import DelegationToken
from braidlog.core.errors import UserError
from braidlog.core.principal import Principal

_COLUMNS: Final = ("token_id", "owner", "requester", "renewers", "issued", "expires", "ends")
_EPILOG: Final = """\
These commands log in with SASL or a client's certificate, and not with a token. What a token is worth, its HMAC, is
shown by `create` alone: it is the password of a login with SCRAM, whose user is the token's id.

examples:
  braidlog tokens create --renewer User:scheduler --max-lifetime P1D --profile alice
  braidlog tokens list --owner User:alice --profile alice
  braidlog tokens renew zkVDSPpLQUqg7fYjmKFLJw --profile scheduler
  braidlog tokens expire zkVDSPpLQUqg7fYjmKFLJw --profile alice

  sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="TOKEN-ID" password="HMAC" tokenauth="true";
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    listing = verbs.add_parser("list", help="which tokens there are, and how long they live")
    listing.add_argument(
        "--owner",
        action="append",
        type=principal,
        metavar="PRINCIPAL",
        help="only those that this one owns, asked for or may renew; may be repeated (default: all)",
    )
    listing.set_defaults(run=run_list)

    create = verbs.add_parser("create", help="have a new token, and its HMAC")
    create.add_argument("--owner", type=principal, metavar="PRINCIPAL", help="whose it is (default: who logs in)")
    create.add_argument(
        "--renewer",
        action="append",
        default=[],
        type=principal,
        metavar="PRINCIPAL",
        help="who may renew and end it besides its owner, such as User:scheduler; may be repeated",
    )
    create.add_argument(
        "--max-lifetime",
        type=duration_ms,
        metavar="DURATION",
        help="how long it lives at most, however often renewed: ISO 8601 such as P1D (default: the broker's choice)",
    )
    create.set_defaults(run=run_create)

    renew = verbs.add_parser("renew", help="let a token live longer")
    renew.add_argument("token_id", metavar="TOKEN-ID")
    renew.add_argument(
        "--for",
        dest="period",
        type=duration_ms,
        metavar="DURATION",
        help="counted from now: ISO 8601 such as PT12H (default: the broker's choice)",
    )
    renew.set_defaults(run=run_renew)

    expire = verbs.add_parser("expire", help="end a token")
    expire.add_argument("token_id", metavar="TOKEN-ID")
    expire.add_argument(
        "--after", dest="period", type=duration_ms, metavar="DURATION", help="not now, but then: ISO 8601 such as PT10M"
    )
    expire.set_defaults(run=run_expire)

    for verb in (listing, create, renew, expire):
        add_connection(verb)
        add_output(verb)


def principal(text: str) -> Principal:
    try:
        return Principal.parse(text)
    except UserError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def run_list(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        found = admin_over(cluster).describe_delegation_tokens(options.owner)
    show([_row(token, options.output) for token in found], options.output, _COLUMNS)
    return 0


def run_create(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        token = admin_over(cluster).create_delegation_token(
            owner=options.owner, renewers=options.renewer, max_lifetime_ms=options.max_lifetime
        )
    show_one({**_row(token, options.output), "hmac": b64encode(token.hmac).decode()}, options.output)
    return 0


def run_renew(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        admin = admin_over(cluster)
        token = _found(admin, options.token_id)
        expires_ms = admin.renew_delegation_token(token.hmac, period_ms=options.period)
    row = {"token_id": token.token_id, "expires_ms": expires_ms}
    report(f"token {token.token_id} expires {moment(expires_ms)}", row, options.output)
    return 0


def run_expire(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        admin = admin_over(cluster)
        token = _found(admin, options.token_id)
        expires_ms = admin.expire_delegation_token(token.hmac, period_ms=options.period)
    row = {"token_id": token.token_id, "expires_ms": expires_ms}
    when = "has ended" if options.period is None else f"expires {moment(expires_ms)}"
    report(f"token {token.token_id} {when}", row, options.output)
    return 0


def _found(admin: Admin, token_id: str) -> DelegationToken:
    """Who may change a token may also see its HMAC, by which brokers ask for it: nobody need type that."""
    for token in admin.describe_delegation_tokens():
        if token.token_id == token_id:
            return token
    raise UserError(f"there is no token {token_id} that you may see; `braidlog tokens list` has those")


def _row(token: DelegationToken, output: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "token_id": token.token_id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(each) for each in token.renewers],
    }
    times = {"issued": token.issued_ms, "expires": token.expires_ms, "ends": token.ends_ms}
    if output == "json":
        return row | {f"{name}_ms": milliseconds for name, milliseconds in times.items()}
    return row | {name: moment(milliseconds) for name, milliseconds in times.items()}
