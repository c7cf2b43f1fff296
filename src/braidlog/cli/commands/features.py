"""`braidlog features describe|upgrade|downgrade`: which protocols all brokers of the cluster have agreed to use."""

from __future__ import annotations

import argparse
from typing import Any, Final

from braidlog.cli.options import add_connection, add_output, connect, shortened
from braidlog.cli.output import remark, report, show
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.features import Features, FeatureUpdate, UpgradeType
from braidlog.core.errors import UserError

_COLUMNS: Final = ("feature", "supported_min", "supported_max", "finalized", "epoch")
# In `finalized` while a downgrade is under way.
_UNFINISHED: Final = "braidlog.downgrade"
_EPILOG: Final = """\
group.version 1 is the newer protocol of consumer groups, transaction.version 2 the newer one of transactions. A cluster
that braidlog began has both. One that Apache Kafka began has neither: they would keep Kafka's brokers out.

examples:
  braidlog features describe
  braidlog features upgrade --dry-run         would it be done?
  braidlog features upgrade                   after the last broker of Kafka has left: none can come back
  braidlog features downgrade                 so that brokers of Kafka can come (back)
  braidlog features downgrade --unsafe        also where consumers and transactions would be cut off
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    describe = verbs.add_parser("describe", help="what the brokers support, and what the cluster has finalised")
    describe.set_defaults(run=run_describe)

    upgrade = verbs.add_parser("upgrade", help="finalise features; brokers of Apache Kafka are kept out from then on")
    upgrade.set_defaults(run=run_upgrade)

    downgrade = verbs.add_parser("downgrade", help="give features up, after what they have left behind is converted")
    downgrade.add_argument(
        "--unsafe", action="store_true", help="put out consumers of the newer protocol, abort open transactions"
    )
    downgrade.set_defaults(run=run_downgrade)

    for verb, which in ((upgrade, "the highest of all"), (downgrade, "0 of all")):
        verb.add_argument(
            "--feature",
            metavar="NAME=LEVEL",
            type=level_of,
            action="append",
            default=[],
            help=f"only this feature, to this level; repeatable (default: {which})",
        )
        verb.add_argument("--dry-run", action="store_true", help="only see whether it would be done")
    for verb in (describe, upgrade, downgrade):
        add_connection(verb)
        add_output(verb)


def level_of(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not (name and equals and level.isascii() and level.isdigit() and len(level) <= 5 and int(level) <= 0x7FFF):
        raise argparse.ArgumentTypeError(f"{shortened(text)}: give NAME=LEVEL, such as group.version=1")
    return name, int(level)


def run_describe(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        features = admin_over(cluster).describe_features()
    show(rows_of(features), options.output, _COLUMNS)
    if _UNFINISHED in features.finalized:
        remark("a downgrade is not finished: `braidlog features downgrade` goes on with it, or says what is in its way")
    return 0


def rows_of(features: Features) -> list[dict[str, Any]]:
    return [
        {
            "feature": name,
            "supported_min": None if (supported := features.supported.get(name)) is None else supported.lowest,
            "supported_max": None if supported is None else supported.highest,
            "finalized": 0 if (finalized := features.finalized.get(name)) is None else finalized.highest,
            "epoch": features.epoch,
        }
        for name in sorted({*features.supported, *features.finalized})
    ]


def run_upgrade(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        admin = admin_over(cluster)
        wanted = dict(options.feature)
        if not wanted:
            wanted = {name: levels.highest for name, levels in admin.describe_features().supported.items()}
        return _update(admin, wanted, UpgradeType.UPGRADE, options)


def run_downgrade(options: argparse.Namespace) -> int:
    kind = UpgradeType.UNSAFE_DOWNGRADE if options.unsafe else UpgradeType.SAFE_DOWNGRADE
    with connect(options) as cluster:
        admin = admin_over(cluster)
        wanted = dict(options.feature) or dict.fromkeys(admin.describe_features().supported, 0)
        return _update(admin, wanted, kind, options)


def _update(admin: Admin, wanted: dict[str, int], kind: UpgradeType, options: argparse.Namespace) -> int:
    if not wanted:
        raise UserError("the broker supports no features; is it one of Apache Kafka's?")
    updates = {name: FeatureUpdate(level, kind) for name, level in wanted.items()}
    admin.update_features(updates, validate_only=options.dry_run).raise_for_errors()
    said = ", ".join(f"{name}={level}" for name, level in wanted.items())
    report(
        f"would be finalised: {said}" if options.dry_run else f"finalised: {said}",
        {"finalized": wanted, "dry_run": options.dry_run},
        options.output,
    )
    return 0
