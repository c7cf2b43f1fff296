"""A broker, put together: every part is made here, started in order, and stopped in the reverse one."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from braidlog.broker.authorization.authorizer import AclAuthorizer, Authorizer
from braidlog.broker.auto_topic_creation import AutoTopicCreation
from braidlog.broker.awaited_roles import AwaitedRoles
from braidlog.broker.config_changes import ConfigChangeListener
from braidlog.broker.control_epochs import ControlEpochs
from braidlog.broker.coordination import (
    BrokerRegistration,
    ClusterMembers,
    announce_failed_directory,
    let_others_lead,
    make_coordination,
)
from braidlog.broker.coordinators.coordinators import Coordinators
from braidlog.broker.dynamic_settings import DynamicBrokerSettings, storage_settings
from braidlog.broker.environment import Environment
from braidlog.broker.finalized_features import FinalizedFeatures
from braidlog.broker.handlers.records.fetch import FetchHandler
from braidlog.broker.handlers.records.fetch_session import FetchSessionCache
from braidlog.broker.handlers.records.produce import ProduceHandler
from braidlog.broker.jobs import JobRunner
from braidlog.broker.local_control_channel import LocalControlChannel
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.broker.quotas.client_quotas import ClientQuotas
from braidlog.broker.replica_manager import ReplicaManager
from braidlog.broker.requests.dispatch import Dispatch
from braidlog.broker.requests.handler_pool import CONVERSIONS, RequestHandlerPool
from braidlog.broker.requests.routes import add_routes
from braidlog.broker.requests.time_slicing import TimeSlicer
from braidlog.cluster import paths
from braidlog.cluster.control_requests import ControlChannel
from braidlog.cluster.features import GROUP_VERSION, MARKER, MARKER_VERSIONS
from braidlog.cluster.image import BrokerInfo, ClusterImage, broker_entity
from braidlog.cluster.loading import load_in_sync
from braidlog.cluster.producer_id_manager import ProducerIdManager, claim_block
from braidlog.cluster.records import BrokerRecord, ProducerIdBlock, decode_config
from braidlog.cluster.store import SessionExpiredError, StoreConnectionError, StoreError, StoreFailedError
from braidlog.cluster.store_client import CurrentSession
from braidlog.config.authorizer import authorizer_settings
from braidlog.config.broker import BrokerSettings
from braidlog.config.listeners import PLAINTEXT
from braidlog.config.topic_names import is_internal
from braidlog.controller.controller import Controller
from braidlog.controller.requests import AlterPartitionResult, PartitionChange
from braidlog.core.errors import FatalError, StorageFault
from braidlog.core.protocol_errors import CoordinatorLoadInProgressError, UnsupportedVersionError
from braidlog.core.quota import QuotaWindow
from braidlog.core.tasks import Tasks
from braidlog.core.timeout_queue import TimeoutQueues
from braidlog.core.types import BrokerId, Endpoint, TopicPartition
from braidlog.metrics import MetricsRegistry
from braidlog.net.fair_queue import FairQueue
from braidlog.net.memory import MemoryBudget, default_memory_max
from braidlog.net.outbound.errors import ClientError
from braidlog.net.round import Round
from braidlog.replication.group_commit import Committer
from braidlog.replication.partition import Partition, ReplicationContext
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.security.acls import AclRules
from braidlog.storage.background_jobs import BackgroundJobs
from braidlog.storage.cleaner.log_cleaner import LogCleaner
from braidlog.storage.dirs.log_dir_failures import LogDirFailure
from braidlog.storage.dirs.log_dir_loader import LoadProgress, LoadReport
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.dirs.lost_replicas import LostReplica
from braidlog.storage.dirs.replica_alter_log_dirs import ReplicaAlterLogDirs
from braidlog.storage.handles import HandlePool

if TYPE_CHECKING:
    from braidlog.broker.authentication.delegation_tokens import DelegationTokenManager
    from braidlog.broker.authentication.scram_users import ScramUsers
    from braidlog.broker.authorization.acl_store import AclStore
    from braidlog.broker.interbroker.replica_fetcher_manager import ReplicaFetcherManager
    from braidlog.broker.interbroker.zk_alter_partition import ZkAlterPartition
    from braidlog.broker.policies import AlterConfigPolicy, CreateTopicPolicy
    from braidlog.controller.direct_writes import DirectWrites

log = logging.getLogger("braidlog.broker")

# More would only take the interpreter's lock from each other.
_MOST_CONVERSIONS: Final = 4
# How long a controller may take to announce a new broker before that is worth a word.
_ANNOUNCED_S: Final = 10.0


class Broker:
    """Everything but the sockets: `dispatch` answers frames of any channel, `round` finishes them."""

    def __init__(
        self,
        settings: BrokerSettings,
        environment: Environment,
        *,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_fatal: Callable[[Exception], None] | None = None,
    ) -> None:
        self.settings = DynamicBrokerSettings(settings)
        self.environment = environment
        self.tasks = Tasks("broker")
        self.registry = PartitionRegistry()
        self.dispatch = Dispatch(environment.clock, self.tasks)
        self.memory = MemoryBudget(
            settings.get_int("braidlog.memory.max") or default_memory_max(environment.memory_bytes),
            settings.get_int("queued.max.request.bytes"),
        )
        self.sessions = FetchSessionCache(
            settings.get_int("max.incremental.fetch.session.cache.slots"), environment.random
        )
        self.broker_id = BrokerId(-1)
        self.broker_epoch = -1
        self.ready = False
        self.is_stopping = False
        self.metrics = MetricsRegistry()
        self.load_report = LoadReport()
        self.handles = HandlePool(environment.files)
        # Asked by every handler before it acts for a client.
        self.authorizer = Authorizer()
        # None on a broker without an authorizer.
        self.acls: AclStore | None = None
        # None on a broker without a secret for them.
        self.delegation_tokens: DelegationTokenManager | None = None
        # None where the settings name none.
        self.create_topic_policy: CreateTopicPolicy | None = None
        self.alter_config_policy: AlterConfigPolicy | None = None
        # None on a broker that is alone.
        self.replica_fetcher_manager: ReplicaFetcherManager | None = None
        self._on_progress = on_progress
        self._on_fatal = on_fatal

    async def start(self, advertised: tuple[Endpoint, ...], protocols: dict[str, str]) -> None:
        """`prepare` and `join`, where there are no sockets to open in between."""
        await self.prepare(advertised[0].listener)
        await self.join(advertised, protocols)

    async def prepare(self, inter_broker: str, protocol: str = PLAINTEXT) -> None:
        """Everything but being part of the cluster; `inter_broker` is the listener between brokers, and what it
        speaks."""
        self._inter_broker_protocol = protocol
        loop = asyncio.get_running_loop()
        settings = self.settings.current
        self._load_policies(settings)
        self.round = Round(loop)
        self.fair_queue = FairQueue(loop)
        self.time_slicer = self.dispatch.time_slicer = TimeSlicer(self.fair_queue, self.environment.clock)
        self.handler_pool = self.dispatch.handler_pool = RequestHandlerPool(
            self.environment.executors.run,
            self.memory.conversions,
            max(1, min(self.environment.cpus - 1, _MOST_CONVERSIONS)),
        )
        self.committer = Committer(
            self.round,
            self.environment.clock,
            self._directory_of,
            self.environment.executors.run,
            self._directory_fault,
        )
        self.logs = self._make_log_manager(settings)
        self.logs.open()
        self.coordination = make_coordination(settings, self.logs, self.environment, self.metrics, self._fatal)
        try:
            await self.coordination.open()
            self.session = CurrentSession(self.coordination.client)
            await self._prepare_on_store(settings, inter_broker)
        except (StoreFailedError, StoreConnectionError, SessionExpiredError) as problem:
            raise FatalError(f"cannot start without the coordination store: {problem}") from problem
        self._add_handlers(settings)
        self.jobs = JobRunner(self.environment.executors, self.tasks, self._directory_fault, self._fatal)
        self.housekeeping = BackgroundJobs(self.logs, self.moves, self.cleaner)

    def _load_policies(self, settings: BrokerSettings) -> None:
        if settings.is_set("create.topic.policy.class.name") or settings.is_set("alter.config.policy.class.name"):
            from braidlog.broker.policies import load_policies

            self.create_topic_policy, self.alter_config_policy = load_policies(settings, self.environment.executors.of)

    async def _prepare_on_store(self, settings: BrokerSettings, inter_broker: str) -> None:
        self.cluster_id, self.broker_id = await self.coordination.identity(settings, self.logs)
        counted_on: list[LostReplica] = []
        if self.coordination.is_cluster and self.logs.has_unformatted_directory:
            found = await load_in_sync(self.session, self.broker_id)
            counted_on = [LostReplica(each.partition, each.topic_id) for each in found]
        self.logs.claim(self.cluster_id, self.broker_id, counted_on)
        self.features = FinalizedFeatures(self.session, self.tasks)
        self.coordination.client.add_listener(self.features)
        await self.features.start()
        await self._apply_stored_settings()
        epochs = ControlEpochs(lambda: self.broker_epoch)
        self.metadata_cache = MetadataCache(self.cluster_id, epochs)
        self.registry.is_known_elsewhere = self.metadata_cache.has_partition
        self.registry.name_elsewhere = self.metadata_cache.name_of
        self.replica_manager = ReplicaManager(self.broker_id, self.registry, self.settings, self.metadata_cache, epochs)
        self.replica_manager.replication_context = ReplicationContext(
            self.environment.clock,
            settings.get_int("replica.lag.time.max.ms") / 1000,
            self.metadata_cache.is_live,
            window=_window(
                settings.get_int("replication.quota.window.num"),
                settings.get_int("replication.quota.window.size.seconds"),
            ),
            sync_tail=self.committer.sync_tail,
        )
        self.replica_manager.apply_rates(self.settings.current)
        # Before anything is read: the settings of brokers may change while logs are loaded.
        self.metadata_cache.add_listener(self.replica_manager)
        self.control_channel = LocalControlChannel(self.replica_manager, self.metadata_cache)
        if self.coordination.is_cluster:
            # A lone broker deletes all topics itself.
            from braidlog.broker.deleted_topics import DeletedTopics

            deleted = DeletedTopics(self.session, self.metadata_cache, self.control_channel, self.tasks)
            epochs.on_first_request = deleted.look
        self.client_quotas = self._make_client_quotas(settings)
        self.metadata_cache.add_listener(self.client_quotas)
        self.config_changes = ConfigChangeListener(self.session, self.metadata_cache, self.tasks)
        # From here on, and not only once this broker is registered: until then logs are loaded, and others may be
        # waited for. A session that ends meanwhile takes the watch with it.
        self.coordination.client.add_listener(self.config_changes)
        await self.config_changes.start()
        self.delegation_tokens = await self._follow_tokens(settings)
        self.acls = await self._follow_acls(settings, inter_broker)
        self.controller = self._make_controller()
        self.members = ClusterMembers(self.broker_id, self.session, self.tasks)
        self.metadata_cache.add_listener(self.members)
        self.topic_creation = AutoTopicCreation(
            self.controller, lambda: self.direct_writes, self.metadata_cache, self.create_topic_policy
        )
        self.inter_broker = inter_broker
        if self.coordination.is_cluster:
            self._connect_to_others()
            self._follow_isr_changes()
        self.producer_ids = ProducerIdManager(self._claim_producer_ids, self.tasks)
        await self._load_logs()
        self.replica_manager.attach(self.logs)
        if self.coordination.is_cluster:
            self.logs.failures.on_directory_failed.append(self._directory_failed)
        self.replica_manager.on_fatal = self._fatal
        self.replica_manager.epochs_lag = lambda: self._epochs_lag
        self.coordination.on_caught_up(self.replica_manager.leader_epochs_written)
        self.moves = ReplicaAlterLogDirs(
            self.logs,
            _window(
                settings.get_int("alter.log.dirs.replication.quota.window.num"),
                settings.get_int("alter.log.dirs.replication.quota.window.size.seconds"),
            ),
        )
        self.cleaner = LogCleaner(self.logs, lambda: self.environment.passes(self.environment.files))
        self.coordinators = self._make_coordinators()
        self.features.on_change(self.coordinators.features_changed)
        await self.coordinators.topics.read_partition_counts(self.session)
        self.metadata_cache.add_listener(self.coordinators)
        self.replica_manager.on_leadership_change.append(self.coordinators.leadership_changed)
        if self.coordination.is_cluster:
            self._span_transactions()
            self._follow_others()

    async def join(self, advertised: tuple[Endpoint, ...], protocols: dict[str, str]) -> None:
        """Enter the cluster: its logs are loaded, and connections to its listeners wait to be accepted."""
        self._endpoints, self._protocols = advertised, protocols
        self.registration = BrokerRegistration(self.broker_id, self._registration_record, self._registered, self._fatal)
        try:
            if self.logs.has_lost_replicas:
                await let_others_lead(self.session, self.broker_id, self.logs, self.environment.clock)
            await self.registration.register(self.session)
            self.coordination.client.add_listener(self.registration, first=True)
            for listener in (self.members, self.controller):
                self.coordination.client.add_listener(listener)
            if self.coordination.is_cluster:
                await self.controller.start(self._control_channel_to, bump_restarted=True)
            else:
                await self.controller.start(self._control_channel_to, bump_leader_epochs=not self.load_report.clean)
                await self._adopt_unknown_logs()
        except (StoreFailedError, StoreConnectionError, SessionExpiredError) as problem:
            raise FatalError(f"cannot start without the coordination store: {problem}") from problem
        self.coordination.started()
        self.jobs.start([*self.housekeeping.jobs(), self.replica_manager.retry_unopened_logs()])
        if self.coordination.is_cluster:
            self.jobs.start([self._isr_changes.job(self.replica_manager.replication_context.lag_s)])
        self.settings.on_change(self._storage_settings_changed)
        self.settings.on_change(self.controller.settings_changed)
        if self.delegation_tokens is not None:
            interval_s = self.settings.current.get_int("delegation.token.expiry.check.interval.ms") / 1000
            removing = self.delegation_tokens.remove_expired_regularly(lambda: self.controller.active, interval_s)
            self.tasks.spawn("removing expired delegation tokens", removing)
        if not self.coordination.is_cluster:
            self.ready = True

    async def wait_until_announced(self) -> None:
        """In a cluster, clients can be served once the controller has told this broker of it."""
        while not self.ready:
            try:
                async with asyncio.timeout(_ANNOUNCED_S):
                    await self.members.announced.wait()
                self.ready = True
            except TimeoutError:
                log.warning(
                    "the controller has not told this broker of the cluster yet; see its log, and `/controller`"
                )

    @property
    def _epochs_lag(self) -> bool:
        """Whether the leader epochs that an unclean stop asks for would not survive this process."""
        return self.coordination.lags and not self.load_report.clean

    def _make_log_manager(self, settings: BrokerSettings) -> LogManager:
        return LogManager(
            settings.log_dirs,
            settings_of=lambda topic: self.replica_manager.settings_of(topic),
            executor_of=self.environment.executors.of,
            files=self.environment.files,
            handles=self.handles,
            clock=self.environment.clock,
            settings=storage_settings(settings),
            lock=self.environment.lock,
            new_id=self.environment.new_id,
            jitter=self.environment.random,
        )

    async def _apply_stored_settings(self) -> None:
        """What was changed at run time before this start counts for the start, too."""
        at = [paths.config(broker_entity(None)), paths.config(broker_entity(self.broker_id))]
        nodes = await self.session.get_many(at)
        found = [{} if node is None else decode_config(path, node.data) for path, node in zip(at, nodes, strict=True)]
        self.settings.apply_dynamic(*found)
        self.logs.apply_settings(storage_settings(self.settings.current))

    def _make_client_quotas(self, settings: BrokerSettings) -> ClientQuotas:
        quotas = ClientQuotas(
            self.environment.clock,
            asyncio.get_running_loop().call_later,
            quota_window(settings),
            _window(
                settings.get_int("controller.quota.window.num"),
                settings.get_int("controller.quota.window.size.seconds"),
            ),
            self._quotas_enabled,
        )
        self.dispatch.on_channel_closed(quotas.channel_closed)
        return quotas

    def _quotas_enabled(self, enabled: bool) -> None:
        """Where there are none, requests are not counted."""
        self.dispatch.quotas = self.client_quotas if enabled else None

    def _make_controller(self) -> Controller:
        return Controller(
            self.session,
            self.broker_id,
            lambda: self.settings.current,
            self.environment.clock,
            self.environment.random,
            self.environment.new_id,
        )

    @cached_property
    def direct_writes(self) -> DirectWrites:
        """Made when it is first needed: many a broker never does."""
        from braidlog.controller.direct_writes import DirectWrites

        writes = DirectWrites(
            lambda: self.session,
            lambda: self.metadata_cache.image,
            lambda: self.settings.current,
            self.environment.clock,
            self.environment.random,
            self.environment.new_id,
        )
        writes.check_broker_overrides = self._check_broker_overrides
        return writes

    @cached_property
    def scram_users(self) -> ScramUsers:
        """Followed from the first time that somebody asks for them."""
        from braidlog.broker.authentication.scram_users import ScramUsers

        users = ScramUsers(secrets.token_bytes())
        users.load(self.metadata_cache.image.configs.items())
        self.metadata_cache.add_listener(users)
        return users

    async def _follow_tokens(self, settings: BrokerSettings) -> DelegationTokenManager | None:
        key = settings.get_str("delegation.token.secret.key") or settings.get_str("delegation.token.master.key")
        if not key:
            return None
        from braidlog.broker.authentication.delegation_tokens import DelegationTokenManager, prepare_tokens
        from braidlog.controller.users.delegation_tokens import token_lifetimes
        from braidlog.security.delegation_tokens import TokenSecret
        from braidlog.security.scram_credentials import UnknownUsers

        await prepare_tokens(self.session)
        tokens = DelegationTokenManager(
            self.session,
            TokenSecret(key),
            token_lifetimes(settings),
            self.environment.clock,
            self.environment.new_id,
            UnknownUsers(secrets.token_bytes()),
            self.tasks,
        )
        self.coordination.client.add_listener(tokens)
        await tokens.start()
        return tokens

    async def _follow_acls(self, settings: BrokerSettings, inter_broker: str) -> AclStore | None:
        wanted = authorizer_settings(settings)
        if wanted is None:
            return None
        from braidlog.broker.authorization.acl_store import AclStore
        from braidlog.broker.authorization.audit_log import AuditLog
        from braidlog.broker.authorization.own_principal import cluster_action_problem, own_principal

        none_yet = AclRules((), wanted.super_users, allow_if_none_found=wanted.allow_if_none_found)
        authorizer = AclAuthorizer(none_yet, AuditLog(asyncio.get_running_loop().call_later))
        acls = AclStore(self.session, authorizer, self.environment.clock, self.tasks)
        for listener in acls.listeners:
            self.coordination.client.add_listener(listener)
        await acls.start()
        if self.coordination.is_cluster:
            own = own_principal(settings, inter_broker, self._inter_broker_protocol)
            problem = cluster_action_problem(authorizer.rules, own)
            if problem is not None:
                log.warning("%s", problem)
        self.authorizer = authorizer
        return acls

    def _connect_to_others(self) -> None:
        # A broker that is alone starts without these.
        from braidlog.broker.interbroker.controller_channel import ControllerClient
        from braidlog.broker.interbroker.network import InterBrokerNetwork
        from braidlog.broker.interbroker.remote_control_channel import RemoteControlChannels

        network = InterBrokerNetwork(
            self.broker_id,
            self.inter_broker,
            lambda: self.settings.current,
            self.environment.random,
            self.environment.connector,
        )
        self.network = network
        self.renew_inter_broker_channels()
        self._remote_channels = RemoteControlChannels(network)
        self.controller_client = ControllerClient(network, lambda: self.metadata_cache.image)

    def renew_inter_broker_channels(self) -> None:
        """How this broker shows itself to the others from now on; raises UserError that names the setting to change."""
        if self.coordination.is_cluster:
            from braidlog.broker.interbroker.network import inter_broker_channels

            self.network.channels = inter_broker_channels(
                self.settings.current, self.inter_broker, self._inter_broker_protocol, self.environment.random
            )

    def _check_broker_overrides(self, entity: str, overrides: Mapping[str, str]) -> None:
        """Raises InvalidRequestError where this broker could not take the overrides over."""
        image = self.metadata_cache.image
        all_brokers, this_broker = broker_entity(None), broker_entity(self.broker_id)
        if entity in (all_brokers, this_broker):
            new = {all_brokers: image.config(all_brokers), this_broker: image.config(this_broker), entity: overrides}
            self.settings.check_dynamic(new[all_brokers], new[this_broker])

    def _follow_isr_changes(self) -> None:
        """A lone broker's partitions have no other replicas."""
        from braidlog.broker.interbroker.alter_partition import AlterPartitionManager

        self._isr_changes = AlterPartitionManager(
            self.registry,
            self._alter_partition,
            lambda: self.metadata_cache.image,
            lambda: self.session.lease,
            self.tasks,
        )
        self.replica_manager.replication_context.propose_isr = self._isr_changes.propose
        self.metadata_cache.add_listener(self._isr_changes)

    async def _alter_partition(self, changes: Sequence[PartitionChange]) -> Sequence[AlterPartitionResult]:
        if self.controller.active:
            return await self.controller.alter_partition(self.broker_id, self.broker_epoch, changes)
        if not self.members.all_ours:
            # Kafka knows no epochs of replicas on ZooKeeper.
            changes = [change.without_epochs() for change in changes]
        try:
            return await self.controller_client.alter_partition(self.broker_id, self.broker_epoch, changes)
        except UnsupportedVersionError:
            return await self._zk_alter_partition.alter_partition(changes)

    @cached_property
    def _zk_alter_partition(self) -> ZkAlterPartition:
        """Only Kafka before 2.7, as the controller, makes it needed."""
        from braidlog.broker.interbroker.zk_alter_partition import ZkAlterPartition

        return ZkAlterPartition(lambda: self.session, self.broker_id, self.environment.clock, self.tasks)

    def _span_transactions(self) -> None:
        from braidlog.broker.interbroker.transactions import RemoteTransactions

        self._remote_transactions = remote = RemoteTransactions(
            self.broker_id,
            self.network,
            lambda: self.metadata_cache.image,
            self.coordinators.markers,
            self.coordinators.transactions.partition_of,
            self.tasks,
        )
        self.coordinators.send_markers = remote.write_markers
        self.coordinators.add_partitions_manager.elsewhere = remote.ask_coordinator

    def _follow_others(self) -> None:
        from braidlog.broker.interbroker.replica_fetcher import FetcherContext
        from braidlog.broker.interbroker.replica_fetcher_manager import ReplicaFetcherManager

        context = FetcherContext(
            broker_id=self.broker_id,
            broker_epoch=lambda: self.broker_epoch,
            settings=lambda: self.settings.current,
            clock=self.environment.clock,
            executors=self.environment.executors,
            logs=self.logs,
            sync_rolled=self.committer.sync_rolled,
            on_fault=self._directory_fault,
            quota=self.replica_manager.replication_context.follower_quota,
            is_in_isr=self._is_in_isr,
        )
        followers = ReplicaFetcherManager(context, self.network, lambda: self.metadata_cache.image.brokers, self.tasks)
        self.settings.on_change(followers.settings_changed)
        self.replica_manager.followers = self.replica_fetcher_manager = followers

    def _is_in_isr(self, key: TopicPartition) -> bool:
        known = self.metadata_cache.image.partition(key)
        return known is not None and self.broker_id in known.isr

    def _control_channel_to(self, broker: BrokerInfo) -> ControlChannel:
        if broker.id == self.broker_id:
            return self.control_channel
        return self._remote_channels.connect(broker)

    async def _claim_producer_ids(self) -> ProducerIdBlock:
        if self.controller.active or not self.coordination.is_cluster:
            return await self.controller.allocate_producer_ids(self.broker_id, self.broker_epoch)
        try:
            return await self._allocate_producer_ids()
        except (ClientError, StoreError, StoreConnectionError, SessionExpiredError) as problem:
            raise CoordinatorLoadInProgressError(f"no producer ids could be had: {problem}") from problem

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        try:
            return await self.controller_client.allocate_producer_ids(self.broker_id, self.broker_epoch)
        except UnsupportedVersionError:
            # Under a controller before Kafka 3.0 each broker claims for itself.
            self.session.lease.check()
            return await claim_block(self.session, self.broker_id)

    def finalized_features(self) -> tuple[Mapping[str, int], int]:
        """The levels that clients may count on, and their epoch; none where a broker may not know them.

        Kafka from 2.7 on does not start where there are any; an older one does not look.
        """
        if self.coordination.is_cluster and not self.members.all_ours:
            return {}, self.features.epoch
        return self.features.levels, self.features.epoch

    def is_read_by_others(self) -> bool:
        """Whether brokers of Kafka copy what is written here and may take over, also while they are down."""
        return self.coordination.is_cluster and bool(self.members.others_met)

    def serves_consumer_protocol(self) -> bool:
        """Not beside brokers that do not know it, like Kafka 3.9 on ZooKeeper; one not looked at yet ends no group."""
        if self.coordination.is_cluster and self.members.others:
            return False
        return self.features.levels.get(GROUP_VERSION, 0) > 0

    def has_session(self) -> bool:
        """Whether the cluster still counts on this broker."""
        return self.session.lease.valid()

    def _make_coordinators(self) -> Coordinators:
        return Coordinators(
            self.broker_id,
            self.registry,
            self.committer,
            self.topic_creation,
            self.metadata_cache,
            self.settings,
            self.environment,
            self.tasks,
            self._directory_of,
            self.producer_ids,
            self.session,
            self.coordination.is_cluster,
            self.is_read_by_others,
            self.features.levels,
        )

    async def advertise(self, advertised: tuple[Endpoint, ...], protocols: dict[str, str]) -> None:
        """Advertise other addresses to clients from now on."""
        self._endpoints, self._protocols = advertised, protocols
        await self.registration.register(self.session)
        await self.controller.read_brokers()

    def _registration_record(self) -> BrokerRecord:
        return BrokerRecord(
            endpoints=self._endpoints,
            security_protocols=self._protocols,
            rack=self.settings.current.get_str("broker.rack") or None,
            features={MARKER: MARKER_VERSIONS},
            timestamp_ms=self.environment.clock.wall_ms(),
            placement_host=self.settings.current.get_str("braidlog.host") or None,
        )

    def _registered(self, epoch: int) -> None:
        self.broker_epoch = epoch

    async def _load_logs(self) -> None:
        loop = asyncio.get_running_loop()
        self.load_report = await loop.run_in_executor(
            self.environment.executors.of("loading"), self.logs.load, self._on_progress
        )
        report = self.load_report
        for problem in report.checkpoint_problems:
            log.warning("%s", problem)
        if report.logs:
            how = "a clean stop" if report.clean else f"an unclean stop, {report.recovered_bytes} bytes checked"
            log.info("opened %d logs after %s", report.logs, how)
        self.environment.executors.start([*(each.path for each in self.logs.online_directories), CONVERSIONS])

    async def _adopt_unknown_logs(self) -> None:
        """Logs of topics that the store does not know: a data directory that came from an Apache Kafka."""
        image = self.metadata_cache.image
        for topic in topics_to_adopt(self.logs, image):
            if image.topics:
                log.warning("set aside %s: this cluster has no such topic", topic.name)
                for partition in topic.partitions:
                    self.logs.mark_stray(partition)
            else:
                wanted = self.coordinators.topics.wanted(topic.name)._replace(
                    partitions=topic.partition_count,
                    replication_factor=1,
                    topic_id=topic.topic_id or self.environment.new_id(),
                )
                (result,) = await self.controller.create_topics([wanted])
                if result.error is not None:
                    raise result.error
                log.info("adopted topic %s with %d partitions", topic.name, topic.partition_count)

    def _add_handlers(self, settings: BrokerSettings) -> None:
        loop = asyncio.get_running_loop()
        self.produce = ProduceHandler(
            self.registry,
            self.committer,
            self.environment.clock,
            self.fair_queue,
            self.handler_pool,
            TimeoutQueues(loop.call_later, self.environment.clock.monotonic),
            self.authorizer,
        )
        self.produce.add_or_verify = self.coordinators.add_partitions_manager.add_or_verify
        self.produce.verifies = self.verifies_transactions
        if self.coordination.is_cluster and settings.get_str("braidlog.session.loss") == "refuse":
            self.produce.has_session = self.has_session
        if self.coordination.is_cluster:
            awaited = AwaitedRoles(self.logs.registry.logs, self.registry, self.produce, loop.call_later)
            self.replica_manager.on_roles_named.append(awaited.named)
        self.fetch = FetchHandler(
            self.registry,
            self.sessions,
            self.round,
            self.environment.clock,
            loop.call_later,
            settings.get_int("fetch.max.bytes"),
            self.time_slicer,
            self.handler_pool,
            self.authorizer,
        )
        if settings.get_str("replica.selector.class").endswith(".RackAwareReplicaSelector"):
            self.fetch.reader.rack_of = self._rack_of
        self.committer.after_writing = self.fetch.answer_followers
        self.dispatch.commit = self.committer.commit
        self.dispatch.on_channel_closed(self.fetch.channel_closed)
        add_routes(self)

    def _rack_of(self, broker: int) -> str | None:
        info = self.metadata_cache.image.brokers.get(BrokerId(broker))
        return None if info is None else info.rack

    def verifies_transactions(self) -> bool:
        return self.settings.current.get_bool("transaction.partition.verification.enable")

    def _storage_settings_changed(self, settings: BrokerSettings, keys: list[str]) -> None:
        before = self.logs.settings
        changed = storage_settings(settings)
        self.logs.apply_settings(changed)
        if (before.cleaner_config, before.log_cleaner_threads) != (changed.cleaner_config, changed.log_cleaner_threads):
            self.cleaner.settings_changed()
            self.jobs.start(self.housekeeping.cleaner_jobs())
        self.jobs.intervals_changed()

    # Faults

    def _directory_of(self, partition: Partition) -> str:
        return self.logs.registry.directory_of(TopicPartition(partition.topic, partition.index)).path

    def _fatal(self, problem: Exception) -> None:
        """Nothing can be served any more: the process that runs this broker decides how it ends."""
        if self._on_fatal is None:
            raise problem
        self._on_fatal(problem)

    def _directory_failed(self, failure: LogDirFailure) -> None:
        self.tasks.spawn(
            f"announcing that {failure.path} failed", announce_failed_directory(self.session, self.broker_id)
        )

    def _directory_fault(self, fault: StorageFault) -> None:
        try:
            self.logs.failures.fail(fault)
        except FatalError as problem:
            self._fatal(problem)

    # Stopping

    async def leave(self) -> None:
        """While requests are still served: let other brokers take over what this one leads."""
        self.is_stopping = True
        if not self.coordination.is_cluster or not self.has_session():
            return
        from braidlog.broker.interbroker.controller_channel import move_leaders_away

        async def ask() -> Sequence[TopicPartition]:
            if self.controller.active:
                return await self.controller.controlled_shutdown(self.broker_id, self.broker_epoch)
            return await self.controller_client.controlled_shutdown(self.broker_id, self.broker_epoch)

        def is_alone() -> bool:
            return self.metadata_cache.image.brokers.keys() <= {self.broker_id}

        await move_leaders_away(self.settings.current, lambda: self.session.lease, ask, is_alone)

    async def drain(self, busy: Callable[[], int], timeout_s: float) -> None:
        """Let requests in progress finish; those that wait for data are answered now."""
        self.ready = False
        drained = asyncio.Event()
        self.round.after = lambda: None if busy() else drained.set()
        self.fetch.finish_all()
        self.round.run()
        self.coordinators.stop()
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
        self.client_quotas.stop()
        await self.controller.stop()
        await self.control_channel.stop()
        if self.coordination.is_cluster:
            self.controller_client.close()
            self._remote_transactions.close()
        self.handler_pool.stop()
        self.committer.commit()
        for partition in self.registry.partitions():
            # What a thread still unpacks is refused: its log is being closed.
            partition.log = None
        loop = asyncio.get_running_loop()
        # The next start has to begin new leader epochs as well, where this one could not make its own durable.
        close = partial(self.logs.close, self.broker_epoch, mark_clean=not self._epochs_lag)
        await loop.run_in_executor(self.environment.executors.of("loading"), close)
        await self.coordination.close()
        self.environment.executors.close()


def quota_window(settings: BrokerSettings) -> QuotaWindow:
    return _window(settings.get_int("quota.window.num"), settings.get_int("quota.window.size.seconds"))


def _window(samples: int, seconds: int) -> QuotaWindow:
    return QuotaWindow(samples, seconds * 1000)


# A KRaft broker keeps its cluster's metadata beside the topics, in a log that is none.
KRAFT_METADATA = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class FoundTopic:
    name: str
    # None where the directories are older than topic ids, or disagree about them.
    topic_id: bytes | None
    partitions: tuple[TopicPartition, ...]

    @property
    def partition_count(self) -> int:
        return max(partition.partition for partition in self.partitions) + 1


def topics_to_adopt(logs: LogManager, image: ClusterImage) -> list[FoundTopic]:
    """Found topics that the cluster does not know, by name; internal ones last, since their records tell of others."""
    found: dict[str, list[TopicPartition]] = {}
    for partition in sorted(logs.partitions):
        if image.topic(partition.topic) is None and partition.topic != KRAFT_METADATA:
            found.setdefault(partition.topic, []).append(partition)
    topics: list[FoundTopic] = []
    for name, partitions in found.items():
        ids = {logs.topic_id(partition) for partition in partitions}
        topics.append(FoundTopic(name, ids.pop() if len(ids) == 1 else None, tuple(partitions)))
    return sorted(topics, key=lambda topic: is_internal(topic.name))
