"""`braidlog log export|import`: a topic's segments out of one stopped broker and into another, with checksums."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from braidlog.cli.options import add_output, path_name
from braidlog.cli.output import Progress, remark, report, size_text
from braidlog.core.errors import FatalError, UserError

if TYPE_CHECKING:
    from braidlog.cluster.store import CoordinationStore
    from braidlog.storage.archive.copying import Progress as OnProgress
    from braidlog.storage.archive.manifest import Manifest

T = TypeVar("T")

_EXPORT_EPILOG: Final = """\
The broker has to be stopped, cleanly. ARCHIVE is a new directory: a directory for each partition as brokers have them,
and manifest.json with a sha256 of each file, the topic's configs, offsets and leader epochs. Every batch is checked on
the way. Offsets of consumer groups, and what is known of producers, stay behind.

examples:
  braidlog log export orders orders.archive --data /var/lib/braidlog
  braidlog log export orders orders.archive --data /d1 --data /d2 --zookeeper z1:2181/kafka
  tar -c orders.archive | ssh other tar -x
"""
_IMPORT_EPILOG: Final = """\
Every checksum and every batch of the archive is checked before anything changes. The topic is then registered with one
replica, in the embedded store of the stopped broker, or in ZooKeeper while all brokers of the cluster are stopped; it
has its records at their offsets when the broker starts. More replicas come by a reassignment.

examples:
  braidlog log import orders.archive --data /var/lib/braidlog
  braidlog log import orders.archive --data /d1 --zookeeper z1:2181/kafka --as orders-restored
  braidlog log import orders.archive --check                             only look whether the archive is whole
"""
_MEGABYTE: Final = 1_000_000


def add_export(export: argparse.ArgumentParser) -> None:
    export.epilog = _EXPORT_EPILOG
    export.add_argument("topic", metavar="TOPIC")
    export.add_argument("archive", metavar="ARCHIVE", type=path_name, help="the directory to make")
    export.add_argument(
        "--data",
        metavar="DIR",
        type=path_name,
        action="append",
        required=True,
        help="a data directory of the stopped broker; repeat it for each of log.dirs",
    )
    _add_store(export)
    add_output(export)
    export.set_defaults(run=run_export)


def add_import(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _IMPORT_EPILOG
    parser.add_argument("archive", metavar="ARCHIVE", type=path_name, help="what `log export` made")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--data", metavar="DIR", type=path_name, help="the data directory of the stopped broker that the logs go to"
    )
    place.add_argument("--check", action="store_true", help="check the archive, and import nothing")
    parser.add_argument("--as", metavar="TOPIC", dest="name", help="another name for the topic")
    _add_store(parser)
    add_output(parser)
    parser.set_defaults(run=run_import)


def _add_store(parser: argparse.ArgumentParser) -> None:
    store = parser.add_mutually_exclusive_group()
    store.add_argument(
        "--store",
        metavar="DIR",
        type=path_name,
        help="where the embedded store is, with several log.dirs or braidlog.store.dir (default: the first --data)",
    )
    store.add_argument("--zookeeper", metavar="HOST:PORT[/PATH]", help="ZooKeeper, as zookeeper.connect names it")
    parser.add_argument(
        "--zookeeper-config", metavar="FILE", help="a broker's settings, for how to reach a ZooKeeper that is secured"
    )


def run_export(options: argparse.Namespace) -> int:
    from braidlog.cluster.backup.topic_registration import StoredTopic, stored_topic
    from braidlog.storage.archive.exporting import TopicFacts, export_topic

    async def read(store: CoordinationStore) -> StoredTopic | None:
        return await stored_topic(store, options.topic)

    found = _in_store(options, options.data[0], read)
    if found is None:
        raise UserError(f"there is no topic {options.topic!r} in the store: `braidlog topics list` shows all")
    progress = Progress()
    facts = TopicFacts(found.configs, found.partitions, found.leader_epochs)
    try:
        manifest = export_topic(options.topic, options.data, Path(options.archive), facts, _on_progress(progress))
    finally:
        progress.clear()
    _report(f"exported to {options.archive}", manifest, options)
    uncommitted = [each.partition for each in manifest.partitions if each.high_watermark < each.end_offset]
    if uncommitted:
        remark(
            f"partitions {uncommitted} have records past their high watermark, which other replicas may not have: "
            "export on the broker that led them last"
        )
    return 0


def run_import(options: argparse.Namespace) -> int:
    from braidlog.config.topic_names import is_internal, problem_with
    from braidlog.storage.archive.importing import read_archive

    archive = Path(options.archive)
    progress = Progress()
    try:
        manifest = read_archive(archive, _on_progress(progress))
    finally:
        progress.clear()
    if options.check:
        _report(f"{archive} is whole", manifest, options)
        return 0
    name = manifest.topic if options.name is None else options.name
    problem = f"{name} is the broker's own" if is_internal(name) else problem_with(name)
    if problem is not None:
        raise UserError(f"--as {name}: {problem}")
    _check_configs(manifest)
    try:
        _import(archive, manifest, name, options, _on_progress(progress))
    finally:
        progress.clear()
    _report(f"imported into {options.data} as {name}", manifest, options, name=name)
    return 0


def _import(archive: Path, manifest: Manifest, name: str, options: argparse.Namespace, on_progress: OnProgress) -> None:
    from braidlog.cluster.backup.topic_registration import ImportedTopic, check_new_topic, register_topic
    from braidlog.cluster.store import SessionExpiredError, StoreConnectionError
    from braidlog.storage.archive.copying import stopped_broker
    from braidlog.storage.archive.importing import stage_import

    with stopped_broker([options.data]) as owner:
        cluster_id, broker_id = owner.cluster_id, owner.node_id
        assert cluster_id is not None
        assert broker_id is not None

        async def bring_in(store: CoordinationStore) -> None:
            wanted = manifest.topic_id if name == manifest.topic else None
            topic_id = await check_new_topic(store, cluster_id, name, wanted)
            topic = ImportedTopic(
                name,
                topic_id,
                [each.leader_epoch for each in manifest.partitions],
                max(each.max_producer_id for each in manifest.partitions),
                manifest.configs,
            )
            staged = stage_import(archive, manifest, Path(options.data), name, topic_id, on_progress)
            try:
                staged.publish()
                await register_topic(store, topic, broker_id)
            except (StoreConnectionError, SessionExpiredError) as problem:
                raise FatalError(
                    f"nobody knows whether {name} was registered, since ZooKeeper does not answer: {problem}. Its logs "
                    f"are in {options.data}; look with `braidlog cluster dump`, and remove them if it was not"
                ) from problem
            except BaseException:
                staged.discard()
                raise

        _in_store(options, options.data, bring_in)


def _check_configs(manifest: Manifest) -> None:
    from braidlog.config.broker import BrokerSettings
    from braidlog.config.topic import validate_overrides
    from braidlog.core.protocol_errors import InvalidConfigError

    try:
        validate_overrides(manifest.configs, BrokerSettings({}))
    except InvalidConfigError as problem:
        raise UserError(f"the archive's configs cannot be a topic's here: {problem.message}") from None


def _in_store(options: argparse.Namespace, data: str, call: Callable[[CoordinationStore], Awaitable[T]]) -> T:
    """With a session of the store: ZooKeeper, or the files that a stopped broker has."""
    if options.zookeeper is not None:
        from braidlog.cli.zookeeper_session import zookeeper_session, zookeeper_settings

        return zookeeper_session(options.zookeeper, zookeeper_settings(options.zookeeper_config), call)
    return _in_files(options.store or data, call)


def _in_files(directory: str, call: Callable[[CoordinationStore], Awaitable[T]]) -> T:
    from braidlog.cluster.embedded import EmbeddedStore
    from braidlog.cluster.journal import CorruptStoreError
    from braidlog.cluster.journal_files import OsJournalFiles, StoredFiles
    from braidlog.core.clock import SystemClock

    if not Path(directory).is_dir() or not StoredFiles(directory).names():
        raise UserError(
            f"{directory} has no coordination store: name its directory with --store, or --zookeeper where the broker "
            "has a zookeeper.connect"
        )
    try:
        store = EmbeddedStore.open(OsJournalFiles(directory), SystemClock())
    except (BlockingIOError, CorruptStoreError) as problem:
        raise UserError(str(problem)) from problem

    async def session() -> T:
        try:
            return await call(store.connect())
        finally:
            await store.close()

    return asyncio.run(session())


def _on_progress(progress: Progress) -> OnProgress:
    def show(done: int, total: int, path: str) -> None:
        progress.show(f"{path}: {done / _MEGABYTE:.0f} of {total / _MEGABYTE:.0f} MB")

    return show


def _report(done: str, manifest: Manifest, options: argparse.Namespace, name: str | None = None) -> None:
    from braidlog.core.ids import id_text

    partitions = [
        {
            "partition": each.partition,
            "start_offset": each.start_offset,
            "end_offset": each.end_offset,
            "leader_epoch": each.leader_epoch,
            "files": len(each.files),
        }
        for each in manifest.partitions
    ]
    row: dict[str, Any] = {
        "archive": options.archive,
        "topic": name or manifest.topic,
        "exported_topic": manifest.topic,
        "exported_id": None if manifest.topic_id is None else id_text(manifest.topic_id),
        "exported_at": manifest.exported_at,
        "cluster_id": manifest.cluster_id,
        "configs": dict(manifest.configs),
        "bytes": manifest.bytes,
        "partitions": partitions,
    }
    report(
        f"{done}: topic {manifest.topic} of cluster {manifest.cluster_id}, {len(partitions)} partitions, "
        f"{manifest.records_span} offsets, {size_text(manifest.bytes)}",
        row,
        options.output,
    )
