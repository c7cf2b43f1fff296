"""A broker, put together: every part is made here, started in order, and stopped in the reverse one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from braidlog.broker.adoption import topics_to_adopt
from braidlog.broker.commit import Committer
from braidlog.broker.conversions import Conversions
from braidlog.broker.coordination import Coordination
from braidlog.broker.coordinator_routes import add_coordinator_routes
from braidlog.broker.dispatch import Dispatch
from braidlog.broker.fetch_sessions import FetchSessions
from braidlog.broker.handlers.fetch import FetchHandler
from braidlog.broker.handlers.produce import ProduceHandler
from braidlog.broker.jobs import JobRunner
from braidlog.broker.live_settings import LiveSettings
from braidlog.broker.local_partitions import LocalPartitions
from braidlog.broker.routes import add_routes
from braidlog.broker.seams import Seams
from braidlog.broker.slices import Slices
from braidlog.broker.storage_settings import storage_settings
from braidlog.cluster import paths
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.image import broker_entity
from braidlog.cluster.journal import CorruptStoreError
from braidlog.cluster.producer_ids import ProducerIds
from braidlog.cluster.records import BrokerRecord, decode_config
from braidlog.cluster.registration import cluster_id, generate_broker_id, last_broker_id, prepare_store, register
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import StoreFailedError
from braidlog.config.broker import BrokerSettings
from braidlog.controller.loop import Controller
from braidlog.core.errors import FatalError, StorageFault, UserError
from braidlog.core.ids import parse_id
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, Endpoint, TopicPartition
from braidlog.net.memory import MemoryBudget, default_memory_max
from braidlog.net.round import Round
from braidlog.net.turns import Turns
from braidlog.replication.partition import Partition
from braidlog.replication.registry import Registry
from braidlog.storage.cleaner.service import LogCleaner
from braidlog.storage.handles import HandlePool
from braidlog.storage.housekeeping import Housekeeping
from braidlog.storage.loading import LoadProgress, LoadReport
from braidlog.storage.manager import LogManager
from braidlog.storage.moving import ReplicaMoves

log = logging.getLogger("braidlog.broker")

# More would only take the interpreter's lock from each other.
_MOST_CONVERSIONS: Final = 4


class Broker:
    """Everything but the sockets: `dispatch` answers frames of any channel, `round` finishes them."""

    def __init__(
        self,
        settings: BrokerSettings,
        seams: Seams,
        *,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_fatal: Callable[[Exception], None] | None = None,
    ) -> None:
        self.settings = LiveSettings(settings)
        self.seams = seams
        self.tasks = Tasks("broker")
        self.registry = Registry()
        self.dispatch = Dispatch(seams.clock, self.tasks)
        self.memory = MemoryBudget(
            settings.get_int("braidlog.memory.max") or default_memory_max(seams.memory_bytes),
            settings.get_int("queued.max.request.bytes"),
        )
        self.sessions = FetchSessions(settings.get_int("max.incremental.fetch.session.cache.slots"), seams.random)
        self.broker_id = BrokerId(-1)
        self.broker_epoch = -1
        self.ready = False
        self.load_report = LoadReport()
        self.handles = HandlePool(seams.files)
        self._on_progress = on_progress
        self._on_fatal = on_fatal

    async def start(self, advertised: tuple[Endpoint, ...], protocols: dict[str, str]) -> None:
        loop = asyncio.get_running_loop()
        settings = self.settings.current
        self.round = Round(loop)
        self.turns = Turns(loop)
        self.slices = self.dispatch.slices = Slices(self.turns, self.seams.clock)
        self.conversions = self.dispatch.conversions = Conversions(
            self.seams.executors.run, self.memory.conversions, max(1, min(self.seams.cpus - 1, _MOST_CONVERSIONS))
        )
        self.committer = Committer(
            self.round, self.seams.clock, self._directory_of, self.seams.executors.run, self._directory_fault
        )
        self.logs = self._make_log_manager(settings)
        self.logs.open()
        store_dir = settings.get_str("braidlog.store.dir") or self.logs.directories[0].path
        try:
            self.store = EmbeddedStore.open(self.seams.journal_files(store_dir), self.seams.clock)
        except (BlockingIOError, CorruptStoreError) as problem:
            raise UserError(str(problem)) from problem
        except OSError as problem:
            raise FatalError(
                f"cannot open the coordination store in {store_dir}: {problem}; it has to be a directory that this "
                "user may write to, on a disk with room"
            ) from problem
        self.store.on_failure(self._fatal)
        self.store.starting = True
        self.session: EmbeddedSession = self.store.connect()
        try:
            await self._start_on_store(settings, advertised, protocols)
        except StoreFailedError as problem:
            raise FatalError(f"cannot start without the coordination store in {store_dir}: {problem}") from problem
        self.store.starting = False
        self._add_handlers(settings)
        self.jobs = JobRunner(self.seams.executors, self.tasks, self._directory_fault, self._fatal)
        self.housekeeping = Housekeeping(self.logs, self.moves, self.cleaner)
        self.jobs.start([*self.housekeeping.jobs(), self.local.open_late_logs()])
        self.settings.on_change(self._storage_settings_changed)
        self.ready = True

    async def _start_on_store(
        self, settings: BrokerSettings, advertised: tuple[Endpoint, ...], protocols: dict[str, str]
    ) -> None:
        await self._settle_identity(settings)
        await self._apply_stored_settings()
        self.local = LocalPartitions(self.broker_id, self.registry, self.settings)
        self.controller = self._make_controller()
        self.producer_ids = ProducerIds(self.session, self.broker_id)
        await self._register(advertised, protocols)
        await self._load_logs()
        self.local.attach(self.logs)
        self.local.on_fatal = self._fatal
        self.local.epochs_lag = lambda: self._epochs_lag
        self.store.on_caught_up(self.local.leader_epochs_written)
        self.moves = ReplicaMoves(self.logs)
        self.cleaner = LogCleaner(self.logs, lambda: self.seams.passes(self.seams.files))
        self.controller.add_listener(self.local)
        self.coordination = self._make_coordination()
        self.controller.add_listener(self.coordination)
        self.local.on_late_log.append(self.coordination.log_opened)
        await self.controller.start(bump_leader_epochs=not self.load_report.clean)
        await self._adopt_unknown_logs()

    @property
    def _epochs_lag(self) -> bool:
        """Whether the leader epochs that an unclean stop asks for would not survive this process."""
        return self.store.lags and not self.load_report.clean

    def _make_log_manager(self, settings: BrokerSettings) -> LogManager:
        return LogManager(
            settings.log_dirs,
            settings_of=lambda topic: self.local.settings_of(topic),
            executor_of=self.seams.executors.of,
            files=self.seams.files,
            handles=self.handles,
            clock=self.seams.clock,
            settings=storage_settings(settings),
            lock=self.seams.lock,
            new_id=self.seams.new_id,
            jitter=self.seams.random,
        )

    async def _settle_identity(self, settings: BrokerSettings) -> None:
        """Cluster and broker id: the store's word first, then the data directories', then the settings'."""
        stored_cluster = self.logs.stored_cluster_id()
        await prepare_store(self.session)
        new_id = self.seams.new_id
        if stored_cluster is not None:
            known = parse_id(stored_cluster)
            self.cluster_id = await cluster_id(self.session, lambda: known)
        else:
            self.cluster_id = await cluster_id(self.session, new_id)
        configured = settings.broker_id
        stored = self.logs.stored_node_id()
        if configured >= 0:
            self.broker_id = BrokerId(configured)
        elif stored is not None:
            self.broker_id = BrokerId(stored)
        elif settings.get_bool("broker.id.generation.enable"):
            reserved = settings.get_int("reserved.broker.max.id")
            # An embedded store has this one broker: should its directories forget the id, the store has not.
            known_id = await last_broker_id(self.session, reserved)
            self.broker_id = known_id or await generate_broker_id(self.session, reserved)
        else:
            raise UserError("broker.id is not set and broker.id.generation.enable is false: set broker.id")
        self.logs.claim(self.cluster_id, self.broker_id)

    async def _apply_stored_settings(self) -> None:
        """What was changed at run time before this start counts for the start, too."""
        at = [paths.config(broker_entity(None)), paths.config(broker_entity(self.broker_id))]
        nodes = await self.session.get_many(at)
        found = [{} if node is None else decode_config(path, node.data) for path, node in zip(at, nodes, strict=True)]
        self.settings.apply_dynamic(*found)
        self.logs.apply_settings(storage_settings(self.settings.current))

    def _make_controller(self) -> Controller:
        return Controller(
            self.session,
            self.broker_id,
            lambda: self.settings.current,
            self.seams.clock,
            self.seams.random,
            self.seams.new_id,
        )

    def _make_coordination(self) -> Coordination:
        return Coordination(
            self.broker_id,
            self.registry,
            self.committer,
            self.controller,
            self.settings,
            self.seams,
            self.tasks,
            self._directory_of,
            self.producer_ids,
        )

    async def advertise(self, advertised: tuple[Endpoint, ...], protocols: dict[str, str]) -> None:
        """Clients are told of other addresses from now on."""
        await self._register(advertised, protocols)
        await self.controller.read_brokers()

    async def _register(self, advertised: tuple[Endpoint, ...], protocols: dict[str, str]) -> None:
        record = BrokerRecord(
            endpoints=advertised,
            security_protocols=protocols,
            rack=self.settings.current.get_str("broker.rack") or None,
            timestamp_ms=self.seams.clock.wall_ms(),
        )
        self.broker_epoch = await register(self.session, self.broker_id, record)

    async def _load_logs(self) -> None:
        loop = asyncio.get_running_loop()
        self.load_report = await loop.run_in_executor(
            self.seams.executors.of("loading"), self.logs.load, self._on_progress
        )
        report = self.load_report
        for problem in report.checkpoint_problems:
            log.warning("%s", problem)
        if report.logs:
            how = "a clean stop" if report.clean else f"an unclean stop, {report.recovered_bytes} bytes checked"
            log.info("opened %d logs after %s", report.logs, how)

    async def _adopt_unknown_logs(self) -> None:
        """Logs of topics that the store does not know: a data directory that came from an Apache Kafka."""
        image = self.controller.image
        for topic in topics_to_adopt(self.logs, image):
            if image.topics:
                log.warning("set aside %s: this cluster has no such topic", topic.name)
                for partition in topic.partitions:
                    self.logs.set_aside(partition)
            else:
                wanted = self.coordination.topics.wanted(topic.name)._replace(
                    partitions=topic.partition_count,
                    replication_factor=1,
                    topic_id=topic.topic_id or self.seams.new_id(),
                )
                (result,) = await self.controller.create_topics([wanted])
                if result.error is not None:
                    raise result.error
                log.info("adopted topic %s with %d partitions", topic.name, topic.partition_count)

    def _add_handlers(self, settings: BrokerSettings) -> None:
        loop = asyncio.get_running_loop()
        self.produce = ProduceHandler(self.registry, self.committer, self.seams.clock, self.turns, self.conversions)
        self.produce.check_partitions = self.coordination.desk.check_partitions
        self.produce.verifies = lambda: self.settings.current.get_bool("transaction.partition.verification.enable")
        self.fetch = FetchHandler(
            self.registry,
            self.sessions,
            self.round,
            self.seams.clock,
            loop.call_later,
            settings.get_int("fetch.max.bytes"),
            self.slices,
            self.conversions,
        )
        self.dispatch.commit = self.committer.commit
        self.dispatch.on_channel_closed(self.fetch.channel_closed)
        add_routes(self)
        add_coordinator_routes(self)

    def _storage_settings_changed(self, settings: BrokerSettings, keys: list[str]) -> None:
        before = self.logs.settings
        changed = storage_settings(settings)
        self.logs.apply_settings(changed)
        if (before.cleaner_memory, before.log_cleaner_threads) != (changed.cleaner_memory, changed.log_cleaner_threads):
            self.cleaner.settings_changed()
            self.jobs.start(self.housekeeping.cleaner_jobs())
        self.jobs.intervals_changed()

    # Faults

    def _directory_of(self, partition: Partition) -> str:
        return self.logs.registry.directory_of(TopicPartition(partition.topic, partition.index)).path

    def _fatal(self, problem: Exception) -> None:
        """Nothing can be served any more: whoever runs this broker decides how it ends."""
        if self._on_fatal is None:
            raise problem
        self._on_fatal(problem)

    def _directory_fault(self, fault: StorageFault) -> None:
        try:
            self.logs.fail_directory(fault)
        except FatalError as problem:
            self._fatal(problem)

    # Stopping

    async def drain(self, busy: Callable[[], int], timeout_s: float) -> None:
        """Let requests in progress finish; those that wait for data are answered now."""
        self.ready = False
        drained = asyncio.Event()
        self.round.after = lambda: None if busy() else drained.set()
        self.fetch.finish_all()
        self.round.run()
        self.coordination.stop()
        self.round.run()
        try:
            async with asyncio.timeout(timeout_s):
                await drained.wait()
        except TimeoutError:
            log.warning("%d connections still had requests in progress after %g s", busy(), timeout_s)
        self.round.after = None
        self.dispatch.stopping = True

    async def stop(self) -> None:
        self.ready = False
        self.round.run()
        await self.tasks.close()
        await self.controller.stop()
        self.conversions.stop()
        self.committer.commit()
        for partition in self.registry.partitions():
            # What a thread still unpacks is refused: its log is being closed.
            partition.log = None
        loop = asyncio.get_running_loop()
        # The next start has to begin new leader epochs as well, where this one could not make its own durable.
        close = partial(self.logs.close, self.broker_epoch, mark_clean=not self._epochs_lag)
        await loop.run_in_executor(self.seams.executors.of("loading"), close)
        await self.store.close()
        self.seams.executors.close()
