"""`braidlog cluster dump|restore`: what a cluster agrees on, as a file; for backups, and to move to another store."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from braidlog.cli.options import add_connection, add_output, connect, path_name
from braidlog.cli.output import remark, report
from braidlog.core.errors import UserError

if TYPE_CHECKING:
    from braidlog.cluster.backup.dump_file import Checked
    from braidlog.cluster.backup.dumping import Dumped
    from braidlog.cluster.backup.restoring import Restored
    from braidlog.cluster.store import CoordinationStore

_DUMP_EPILOG: Final = """\
Topics, configs, ACLs, users, quotas, ids and epochs, as JSON, a line for each node, with a checksum; no records, which
are in the data directories. Brokers may run meanwhile. Left out, and counted: ephemeral nodes (who is registered, who
is the controller), notifications, and, unless --include-secrets is given, SCRAM credentials, delegation tokens and
passwords. The file is readable for its owner alone.

With --bootstrap the brokers are asked instead: for a cluster without ZooKeeper (KRaft) with whose data directories
brokers of braidlog are to go on. All replicas have to be in sync, and nobody may write from then on. Not told are
secrets, delegation tokens and settings of groups.

examples:
  braidlog cluster dump backup.jsonl --data /var/lib/braidlog
  braidlog cluster dump backup.jsonl --zookeeper z1:2181,z2:2181/kafka --include-secrets
  braidlog cluster dump kraft.jsonl --bootstrap k1:9092
"""
_RESTORE_EPILOG: Final = """\
No broker of the cluster may run. The whole file is checked before anything changes, and the tree is compared with it
afterwards. An embedded store is replaced at once; ZooKeeper takes several transactions where the tree is large, and
what a failed try has made is removed again.

examples:
  braidlog cluster restore backup.jsonl --data /var/lib/braidlog --replace
  braidlog cluster restore backup.jsonl --zookeeper z1:2181,z2:2181/kafka
  braidlog cluster restore backup.jsonl --check                           only look whether the file is sound
"""


def add_dump(dump: argparse.ArgumentParser) -> None:
    dump.epilog = _DUMP_EPILOG
    dump.add_argument("file", metavar="FILE", type=path_name, help="the file to write")
    _add_place(dump, required=False)
    add_connection(dump)
    dump.add_argument("--include-secrets", action="store_true", help="also credentials, tokens and passwords")
    dump.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    add_output(dump)
    dump.set_defaults(run=run_dump)


def add_restore(restore: argparse.ArgumentParser) -> None:
    restore.epilog = _RESTORE_EPILOG
    restore.add_argument("file", metavar="FILE", type=path_name, help="what `cluster dump` wrote")
    place = _add_place(restore, required=False)
    place.add_argument("--check", action="store_true", help="check the file, and restore nothing")
    restore.add_argument("--replace", action="store_true", help="remove what the tree holds now")
    add_output(restore)
    restore.set_defaults(run=run_restore)


def _add_place(parser: argparse.ArgumentParser, *, required: bool) -> argparse._MutuallyExclusiveGroup:
    place = parser.add_mutually_exclusive_group(required=required)
    place.add_argument(
        "--data",
        metavar="DIR",
        type=path_name,
        help="an embedded store: the first data directory of its broker, or braidlog.store.dir",
    )
    place.add_argument("--zookeeper", metavar="HOST:PORT[/PATH]", help="ZooKeeper, as zookeeper.connect names it")
    parser.add_argument(
        "--zookeeper-config", metavar="FILE", help="a broker's settings, for how to reach a ZooKeeper that is secured"
    )
    return place


def run_dump(options: argparse.Namespace) -> int:
    from braidlog.cluster.backup.dumping import dump_store, dump_tree, stored_tree

    path = Path(options.file)
    secrets, overwrite = options.include_secrets, options.overwrite
    if options.data is not None:
        dumped = dump_tree(stored_tree(options.data), path, secrets=secrets, overwrite=overwrite)
    elif options.zookeeper is None:
        dumped = _dump_described(path, options)
    else:
        from braidlog.cli.zookeeper_session import zookeeper_session, zookeeper_settings

        async def dump(store: CoordinationStore) -> Dumped:
            return await dump_store(store, path, secrets=secrets, overwrite=overwrite)

        dumped = zookeeper_session(options.zookeeper, zookeeper_settings(options.zookeeper_config), dump)
    report(
        f"{path}: {dumped.contents}; left out: {dumped.left_out}",
        {
            "file": str(path),
            **asdict(dumped.contents),
            "left_out": asdict(dumped.left_out),
            "point_in_time": dumped.point_in_time,
        },
        options.output,
    )
    if dumped.left_out.secrets and options.data is None and options.zookeeper is None:
        remark("brokers tell no secrets: give users new passwords, and brokers theirs, before clients log in")
    elif dumped.left_out.secrets:
        remark("secrets are not in the dump: with --include-secrets they are; without them users have no passwords")
    if not dumped.point_in_time:
        remark(
            "the tree changed while it was read: the dump holds every node, but not all of one moment; take another "
            "while no topics, configs or leaders change"
        )
    return 0


def _dump_described(path: Path, options: argparse.Namespace) -> Dumped:
    from braidlog.cli.described_cluster import ask_cluster
    from braidlog.client.admin.admin import admin_over
    from braidlog.cluster.backup.dumping import dump_described

    if options.bootstrap is None:
        raise UserError("say what to read: --data DIR, --zookeeper HOST:PORT[/PATH], or --bootstrap HOST:PORT")
    if options.include_secrets:
        raise UserError("brokers tell nobody their secrets: leave out --include-secrets")
    with connect(options) as cluster:
        told = ask_cluster(admin_over(cluster))
    return dump_described(told.cluster, told.secrets, path, overwrite=options.overwrite)


def run_restore(options: argparse.Namespace) -> int:
    path = Path(options.file)
    if not path.is_file():
        raise UserError(f"{path} is no file: name one that `braidlog cluster dump` wrote")
    if options.check:
        return _check(path, options.output)
    if options.data is not None:
        restored = _restore_embedded(path, options)
    elif options.zookeeper is not None:
        restored = _restore_zookeeper(path, options)
    else:
        raise UserError(
            "say where to: --data DIR or --zookeeper HOST:PORT[/PATH]; or --check to look at the file alone"
        )
    checked = restored.checked
    at_once = "at once" if restored.transactions == 1 else f"in {restored.transactions} transactions"
    report(
        f"restored {checked.contents}, {at_once}, and compared with {path}; {restored.removed} nodes made room",
        {**_facts(path, checked), "transactions": restored.transactions, "removed": restored.removed},
        options.output,
    )
    _say_what_is_missing(checked)
    return 0


def _check(path: Path, output: str) -> int:
    from braidlog.cluster.backup.dump_file import check_dump

    with path.open("rb") as file:
        checked = check_dump(file, str(path))
    text = f"{path} is sound: cluster {checked.cluster_id}, taken at {checked.header.taken_at}, {checked.contents}"
    report(text, _facts(path, checked), output)
    _say_what_is_missing(checked)
    return 0


def _restore_embedded(path: Path, options: argparse.Namespace) -> Restored:
    from braidlog.cluster.backup.restoring import check_for_embedded, restore_embedded
    from braidlog.storage.dirs.meta_properties import FILE_NAME, decode_meta_properties

    properties = Path(options.data) / FILE_NAME
    if properties.exists():
        owner = decode_meta_properties(properties.read_text("utf-8", "replace"), str(properties)).cluster_id
        cluster_id = check_for_embedded(path).cluster_id
        if owner is not None and owner != cluster_id:
            raise UserError(f"{options.data} belongs to cluster {owner}, and {path} is of cluster {cluster_id}")
    return restore_embedded(path, options.data, replace=options.replace)


def _restore_zookeeper(path: Path, options: argparse.Namespace) -> Restored:
    from braidlog.cli.zookeeper_session import zookeeper_session, zookeeper_settings
    from braidlog.cluster.backup.restoring import restore_store

    async def restore(store: CoordinationStore) -> Restored:
        return await restore_store(store, path, replace=options.replace)

    return zookeeper_session(options.zookeeper, zookeeper_settings(options.zookeeper_config), restore)


def _facts(path: Path, checked: Checked) -> dict[str, Any]:
    return {
        "file": str(path),
        "cluster_id": checked.cluster_id,
        "store": checked.header.store,
        "taken_at": checked.header.taken_at,
        "secrets": checked.header.secrets,
        "point_in_time": checked.point_in_time,
        **asdict(checked.contents),
        "left_out": asdict(checked.left_out),
    }


def _say_what_is_missing(checked: Checked) -> None:
    if checked.left_out.secrets:
        remark(
            f"{checked.left_out.secrets} credentials, tokens and passwords are not in the dump: give users new ones "
            "(`braidlog users create`), or take a dump with --include-secrets"
        )
    if not checked.point_in_time:
        remark("the tree was changing while the dump was taken: its nodes are not all of one moment")
