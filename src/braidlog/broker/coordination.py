"""How a broker enters its cluster and stays in it: alone over the embedded store, or with others over a shared one.

                embedded store, alone                   ZooKeeper, or an embedded store that workers share
cluster id      the directories' own, made up once      the ensemble's; other directories are refused
broker id       configured, stored, the last, a new one configured, stored, a new one
session         as long as the process                  lost and opened again, with a new registration each time
logs that the   adopted into an empty store             left alone
  store does
  not know
unclean stop    new leader epochs at the next start     the controller sees another broker epoch
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Final, Protocol

from braidlog.broker.environment import Environment
from braidlog.cluster import paths, records
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.features import KNOWN, NEWEST, is_ours
from braidlog.cluster.image import ClusterImage, ImageDelta
from braidlog.cluster.inter_broker_protocol import feature_record_version
from braidlog.cluster.journal import CorruptStoreError
from braidlog.cluster.loading import load_in_sync
from braidlog.cluster.records import BadRecordError, BrokerRecord, FeaturesRecord
from braidlog.cluster.registration import (
    cluster_id,
    finalized_features,
    generate_broker_id,
    last_broker_id,
    prepare_store,
    register,
)
from braidlog.cluster.store import (
    CoordinationStore,
    NoNodeError,
    SessionExpiredError,
    StoreConnectionError,
)
from braidlog.cluster.store_client import StoreClient
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import Clock
from braidlog.core.errors import FatalError, UserError
from braidlog.core.ids import parse_id
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId
from braidlog.metrics import MetricsRegistry
from braidlog.storage.dirs.log_manager import LogManager

log = logging.getLogger("braidlog.broker")

# Between tries to tell the controller of a failed directory.
_ANNOUNCE_AGAIN_S: Final = 1.0
# Between tries to read which kinds of brokers there are.
_LOOK_AGAIN_S: Final = 1.0
# How long the other replicas of a disk that was replaced may take to be back: their brokers may have to recover.
_OTHERS_LEAD_S: Final = 300.0
_OTHERS_LEAD_POLL_S: Final = 2.0
# While nothing changes, the wait is mentioned this often.
_OTHERS_LEAD_SAY_S: Final = 30.0


class Coordination(Protocol):
    @property
    def client(self) -> StoreClient: ...

    @property
    def is_cluster(self) -> bool:
        """Whether there may be other brokers."""
        ...

    @property
    def lags(self) -> bool:
        """Whether what was written last may not survive this process."""
        ...

    async def open(self) -> CoordinationStore:
        """The first session; raises UserError or FatalError in one line."""
        ...

    async def identity(self, settings: BrokerSettings, logs: LogManager) -> tuple[str, BrokerId]:
        """The cluster's id and this broker's."""
        ...

    def on_caught_up(self, callback: Callable[[], None]) -> None:
        """Called when `lags` becomes false."""
        ...

    def started(self) -> None:
        """The broker has entered the cluster."""
        ...

    async def close(self) -> None: ...


class EmbeddedCoordination:
    is_cluster = False

    def __init__(self, store_dir: str, environment: Environment, on_fatal: Callable[[Exception], None]) -> None:
        self._store_dir = store_dir
        self._environment = environment
        try:
            self.store = EmbeddedStore.open(environment.journal_files(store_dir), environment.clock)
        except (BlockingIOError, CorruptStoreError) as problem:
            raise UserError(str(problem)) from problem
        except OSError as problem:
            raise FatalError(
                f"cannot open the coordination store in {store_dir}: {problem}; it has to be a directory that this "
                "user may write to, on a disk with room"
            ) from problem
        self.store.on_failure(on_fatal)
        self.store.starting = True
        self.client = StoreClient(self.store.open_session)

    @property
    def lags(self) -> bool:
        return self.store.lags

    async def open(self) -> CoordinationStore:
        return await self.client.start()

    async def identity(self, settings: BrokerSettings, logs: LogManager) -> tuple[str, BrokerId]:
        """The store's word first, then the data directories', then the settings'."""
        session = self.client.session
        stored_cluster = logs.stored_cluster_id()
        await prepare_store(session)
        new_id = self._environment.new_id
        if stored_cluster is not None:
            known = parse_id(stored_cluster)
            cluster = await cluster_id(session, lambda: known)
        else:
            cluster = await cluster_id(session, new_id)
        # A store of before features were in it had all of them on.
        await finalized_features(session, _newest(settings), initialised_here=True)
        known_id = _given_broker_id(settings, logs)
        if known_id is None:
            reserved = settings.get_int("reserved.broker.max.id")
            # An embedded store has this one broker: should its directories forget the id, the store has not.
            known_id = await last_broker_id(session, reserved) or await generate_broker_id(session, reserved)
        return cluster, known_id

    def on_caught_up(self, callback: Callable[[], None]) -> None:
        self.store.on_caught_up(callback)

    def started(self) -> None:
        self.store.starting = False

    async def close(self) -> None:
        await self.store.close()


class SharedCoordination:
    is_cluster = True
    lags = False

    def __init__(self, place: str, client: StoreClient, new_id: Callable[[], bytes]) -> None:
        """`place` is the setting that names the store, with its value, for messages."""
        self._place = place
        self.client = client
        self._new_id = new_id

    async def open(self) -> CoordinationStore:
        return await self.client.start()

    async def identity(self, settings: BrokerSettings, logs: LogManager) -> tuple[str, BrokerId]:
        """Nothing is written before the directories are known to belong here."""
        session = self.client.session
        stored = logs.stored_cluster_id()
        try:
            found = records.decode_cluster_id(paths.CLUSTER_ID, (await session.get(paths.CLUSTER_ID)).data)
        except NoNodeError:
            if stored is not None:
                raise UserError(
                    f"the data directories belong to cluster {stored}, and there is none at {self._place}; is the "
                    "path at its end right? To start a new cluster, use empty directories"
                ) from None
            found = ""
        if found and stored is not None and stored != found:
            raise UserError(
                f"the data directories belong to cluster {stored}, and {self._place} is cluster {found}; correct "
                f"{self._place.partition('=')[0]} or log.dirs"
            )
        await prepare_store(session)
        newest = _newest(settings)
        cluster = await cluster_id(session, self._new_id, newest)
        # In an ensemble that others have initialised, nothing is finalised.
        _refuse_unknown(await finalized_features(session, newest, initialised_here=False))
        known_id = _given_broker_id(settings, logs)
        if known_id is None:
            known_id = await generate_broker_id(session, settings.get_int("reserved.broker.max.id"))
        return cluster, known_id

    def on_caught_up(self, callback: Callable[[], None]) -> None:
        """It never lags: what was answered is durable."""

    def started(self) -> None: ...

    async def close(self) -> None:
        await self.client.close()


def _given_broker_id(settings: BrokerSettings, logs: LogManager) -> BrokerId | None:
    configured = settings.broker_id
    stored = logs.stored_node_id()
    if configured >= 0:
        return BrokerId(configured)
    if stored is not None:
        return BrokerId(stored)
    if settings.get_bool("broker.id.generation.enable"):
        return None
    raise UserError("broker.id is not set and broker.id.generation.enable is false: set broker.id")


def _newest(settings: BrokerSettings) -> FeaturesRecord:
    """What is finalised in a cluster that this broker begins, as its oldest peers read it."""
    return FeaturesRecord(True, NEWEST, feature_record_version(settings.get_str("inter.broker.protocol.version")))


def _refuse_unknown(features: FeaturesRecord) -> None:
    """As Kafka does: a cluster may have agreed on something that this broker does not know how to do."""
    for name, level in sorted(features.levels.items()):
        known = KNOWN.get(name, 0)
        if level > known:
            raise UserError(
                f"the cluster has finalized {name}={level} ({paths.FEATURE}), and this braidlog knows "
                f"{f'up to {known}' if known else 'no such feature'}; start one that does: its other brokers are newer"
            )


class BrokerRegistration:
    """Registers this broker in every session, and says which epoch it got."""

    def __init__(
        self,
        broker_id: BrokerId,
        record: Callable[[], BrokerRecord],
        on_registered: Callable[[int], None],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self._broker_id = broker_id
        self._record = record
        self._on_registered = on_registered
        self._on_fatal = on_fatal

    async def register(self, session: CoordinationStore) -> None:
        self._on_registered(await register(session, self._broker_id, self._record()))

    def session_lost(self) -> None:
        """The node is gone with the session."""

    async def session_opened(self, session: CoordinationStore) -> None:
        try:
            await self.register(session)
        except FatalError as problem:
            # Another broker has taken the id meanwhile.
            self._on_fatal(problem)
            return
        log.info("broker %d is registered again, in a new session", self._broker_id)


async def let_others_lead(session: CoordinationStore, broker_id: BrokerId, logs: LogManager, clock: Clock) -> None:
    """Wait until replicas that were lost with a disk are out of the ISRs, or alone in them; not for ever.

    Once this broker is registered a controller would take it for in sync, and for its sake drop the others that are
    down, although they have what it lost.
    """
    deadline = clock.monotonic() + _OTHERS_LEAD_S
    said_for: tuple[BrokerId, ...] = ()
    said_at = 0.0
    while True:
        others: dict[BrokerId, None] = {}
        try:
            for each in await load_in_sync(session, broker_id):
                if logs.is_lost(each.partition, each.topic_id):
                    others.update(dict.fromkeys(member for member in each.isr if member != broker_id))
        except (StoreConnectionError, SessionExpiredError) as problem:
            log.warning("which of its lost replicas the cluster counts on is not known, it is tried again: %s", problem)
        else:
            if not others or clock.monotonic() >= deadline:
                return
            now = clock.monotonic()
            if tuple(others) != said_for or now - said_at >= _OTHERS_LEAD_SAY_S:
                said_for, said_at = tuple(others), now
                log.warning(
                    "a data directory was replaced: this broker does not register before others lead what was on it, "
                    "for up to %.0f s more. Start those of the brokers %s that are down",
                    deadline - now,
                    list(others),
                )
        await asyncio.sleep(_OTHERS_LEAD_POLL_S)


async def announce_failed_directory(session: CoordinationStore, broker_id: BrokerId) -> None:
    """Have the controller ask this broker which logs it has lost, and elect other leaders."""
    while True:
        try:
            session.lease.check()
            await session.create(paths.LOG_DIR_EVENT, records.encode_log_dir_event(broker_id), sequential=True)
        except StoreConnectionError as problem:
            log.warning("the controller does not know of a failed data directory yet, it is tried again: %s", problem)
            await asyncio.sleep(_ANNOUNCE_AGAIN_S)
            continue
        except SessionExpiredError:
            pass  # a broker that registers is asked anyway
        return


class ClusterMembers:
    """Who is in the cluster, as the controller announces it: this broker, and whether all others are of its kind.

    Brokers without our marker do not know the group protocol and the transactions that our features stand for, so that
    clients must not use them where there are such. A registration is read once for each time that its broker is
    announced, and all of them once more in every new session: a look that the old one cut short is made good.
    """

    def __init__(self, broker_id: BrokerId, session: CoordinationStore, tasks: Tasks) -> None:
        self._broker_id = broker_id
        self._session = session
        self._tasks = tasks
        self._ids: frozenset[BrokerId] = frozenset()
        self._ours: frozenset[BrokerId] = frozenset()
        # Known to be of another kind; one whose registration was not read yet is neither this nor ours.
        self.others: frozenset[BrokerId] = frozenset()
        # Those ever met here that did not come back as ours: they must be able to read what is written meanwhile.
        self.others_met: frozenset[BrokerId] = frozenset()
        # Set once the controller has told this broker of the cluster.
        self.announced = asyncio.Event()

    @property
    def all_ours(self) -> bool:
        return bool(self._ids) and self._ids <= self._ours

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        if delta.brokers is None:
            return
        ids = self._ids = frozenset(delta.brokers)
        # One that left may come back as another kind.
        self._ours &= ids
        self.others &= ids
        if self._ours | self.others != ids:
            # Whoever announces brokers must not wait for the store.
            self._tasks.spawn("features of the brokers", self._look_until_read())
        if self._broker_id in ids:
            self.announced.set()

    def session_lost(self) -> None:
        """What was read of the brokers holds as long as they are announced."""

    async def session_opened(self, session: CoordinationStore) -> None:
        self._session = session
        await self._look()

    async def _look_until_read(self) -> None:
        while True:
            try:
                await self._look()
            except StoreConnectionError as problem:
                log.warning("the features of the brokers cannot be read now, it is tried again: %s", problem)
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            except SessionExpiredError:
                pass  # the next session begins with a look
            return

    async def _look(self) -> None:
        ids = self._ids
        # The server that this broker talks to may not have heard of a broker that the controller announces.
        await self._session.sync()
        at = sorted(ids)
        nodes = await self._session.get_many([paths.broker(each) for each in at])
        if self._ids is not ids:
            return  # who came meanwhile is looked at anyway
        found = {each: _is_ours(each, node.data) for each, node in zip(at, nodes, strict=True) if node is not None}
        self._ours = frozenset(each for each, ours in found.items() if ours)
        self.others = frozenset(each for each, ours in found.items() if not ours)
        self.others_met = (self.others_met - self._ours) | self.others


def _is_ours(broker: BrokerId, data: bytes) -> bool:
    try:
        return is_ours(records.decode_broker(paths.broker(broker), data).features)
    except BadRecordError as problem:
        log.warning("the registration of broker %d cannot be read, so it counts as another kind: %s", broker, problem)
        return False


def make_coordination(
    settings: BrokerSettings,
    logs: LogManager,
    environment: Environment,
    metrics: MetricsRegistry,
    on_fatal: Callable[[Exception], None],
) -> Coordination:
    """On ZooKeeper where `zookeeper.connect` is set, on a shared store where its socket is, else on one of its own."""
    connect = settings.get_str("zookeeper.connect")
    path = settings.get_str("braidlog.store.socket")
    if connect and path:
        raise UserError("zookeeper.connect and braidlog.store.socket name two stores: leave out one of them")
    if connect:
        open_session = environment.open_session
        if open_session is None:
            # What only a cluster needs is imported here.
            from braidlog.cluster.zookeeper.connection_settings import connection_settings
            from braidlog.cluster.zookeeper.zookeeper_store import ZooKeeperStore

            store = ZooKeeperStore(connection_settings(connect, settings), environment.clock, metrics)
            open_session = store.open_session
        return SharedCoordination(f"zookeeper.connect={connect}", StoreClient(open_session), environment.new_id)
    if path:
        from braidlog.cluster.shared_store.store_connection import SharedStore, shared_store_settings

        # Its directory is locked: whoever had a session in this name before is dead.
        owner = os.path.abspath(logs.directories[0].path)
        shared = SharedStore(shared_store_settings(settings, owner), environment.clock, metrics)
        return SharedCoordination(f"braidlog.store.socket={path}", StoreClient(shared.open_session), environment.new_id)
    store_dir = settings.get_str("braidlog.store.dir") or logs.directories[0].path
    return EmbeddedCoordination(store_dir, environment, on_fatal)
