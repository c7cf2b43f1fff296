"""Administers a cluster: every call is in one class, and the module that makes it is imported when it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.backoff import Retry
from braidlog.client.requests.list_offsets import IsolationLevel
from braidlog.client.runtime import ClientRuntime, current_runtime
from braidlog.client.settings import ADMIN, Settings, definitions
from braidlog.core.errors import UserError

if TYPE_CHECKING:
    from braidlog.client.admin.cluster_description import ApiVersionRange, ClusterDescription
    from braidlog.client.admin.configs import ConfigChange, ConfigEntry, ConfigResource
    from braidlog.client.admin.delegation_tokens import DelegationToken
    from braidlog.client.admin.features import Features, FeatureUpdate
    from braidlog.client.admin.group_offsets import Offsets
    from braidlog.client.admin.groups import GroupDescription, GroupState, GroupType, ListedGroup
    from braidlog.client.admin.log_dirs import LogDir, Replica
    from braidlog.client.admin.quotas import QuotaEntity, QuotaFilter
    from braidlog.client.admin.reassignments import Reassignment
    from braidlog.client.admin.results import Results
    from braidlog.client.admin.scram import ScramCredential, ScramDeletion, ScramUpsertion
    from braidlog.client.admin.topics import (
        CreatedTopic,
        ListedTopic,
        NewPartitions,
        NewTopic,
        TopicDescription,
        TopicId,
    )
    from braidlog.client.admin.transactions import (
        ActiveProducer,
        FencedProducer,
        ListedTransaction,
        TransactionDescription,
        TransactionState,
    )
    from braidlog.client.arguments import ByPartition, Many, Partitions
    from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
    from braidlog.client.requests.list_offsets import ListedOffset
    from braidlog.client.typed_settings import AdminSettings
    from braidlog.core.principal import Principal
    from braidlog.core.types import TopicPartition
    from braidlog.security.acls import Acl, AclFilter

_CLIENT_ID: Final = "braidlog-admin"
_REMOVAL_REASON: Final = "member was removed by an admin"
# No transaction begins with the producer that fences the others, so its timeout does not matter.
_FENCING_TIMEOUT_MS: Final = 1


class ElectionType(IntEnum):
    # The first of the replicas leads again, if it is in sync.
    PREFERRED = 0
    # Any replica that is alive, though records may be lost.
    UNCLEAN = 1


class Admin:
    """Administers any Kafka-compatible cluster.

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("orders", partitions=6)]).raise_for_errors()

    Settings are Kafka's, in snake case or as a mapping with dotted names. Nothing is connected to before the first
    call. Calls block, each for at most `default.api.timeout.ms`; threads may share an Admin, and their requests take
    turns. What a call on many things answers is a `Results`.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[AdminSettings]) -> None:
        checked = Settings.of(ADMIN, config, settings)
        servers = checked.items("bootstrap.servers")
        if not servers:
            raise UserError("no bootstrap server given; say bootstrap_servers='HOST:PORT'")
        self._servers = ",".join(servers)
        self._driver = _driver(self._servers, checked, current_runtime())

    def __repr__(self) -> str:
        return f"<Admin of {self._servers}{', closed' if self._driver.is_closed else ''}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("an Admin cannot be copied or pickled; make one where it is used")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; calls after this are refused."""
        self._driver.close()

    def within(self, seconds: float) -> Self:
        """The same admin with another deadline: `admin.within(5).list_topics()`."""
        other = type(self).__new__(type(self))
        other._servers = self._servers
        other._driver = self._driver.within(seconds)
        return other

    # Topics

    def create_topics(self, topics: Many[NewTopic | str], *, validate_only: bool = False) -> Results[str, CreatedTopic]:
        """Make topics; a bare name leaves everything to the broker. `validate_only` makes none, but answers as if."""
        from braidlog.client.admin.topics import create_topics

        return create_topics(self._driver, topics, validate_only=validate_only)

    def delete_topics(self, topics: Many[str | TopicId]) -> Results[str | TopicId, None]:
        """Delete topics with all their records; those named by id only if they are still the same."""
        from braidlog.client.admin.topics import delete_topics

        return delete_topics(self._driver, topics)

    def create_partitions(
        self, totals: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> Results[str, None]:
        """Give topics more partitions: by topic how many there shall be in all."""
        from braidlog.client.admin.topics import create_partitions

        return create_partitions(self._driver, totals, validate_only=validate_only)

    def list_topics(self, *, internal: bool = True) -> list[ListedTopic]:
        """All topics by name; with `internal=False` without those that brokers keep for themselves."""
        from braidlog.client.admin.topics import list_topics

        return list_topics(self._driver, internal=internal)

    def describe_topics(
        self, topics: Many[str | TopicId] | None = None, *, authorized_operations: bool = False
    ) -> Results[str | TopicId, TopicDescription]:
        """Topics by name or id (all, unless some are named), with where their partitions are."""
        from braidlog.client.admin.topics import describe_topics

        return describe_topics(self._driver, topics, authorized_operations=authorized_operations)

    # Settings of topics, brokers and other resources

    def describe_configs(
        self,
        resources: Many[ConfigResource],
        *,
        names: Many[str] | None = None,
        synonyms: bool = True,
        documentation: bool = False,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """By resource its settings, or only those named, by name."""
        from braidlog.client.admin.configs import describe_configs

        return describe_configs(self._driver, resources, names=names, synonyms=synonyms, documentation=documentation)

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None] | Many[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> Results[ConfigResource, None]:
        """Change some settings and leave the others as they are.

        By resource the new values by name, where None means back to the default; or a list of `ConfigChange`, which
        can also add to lists and take from them.
        """
        from braidlog.client.admin.configs import alter_configs

        return alter_configs(self._driver, changes, validate_only=validate_only)

    def list_client_metrics_resources(self) -> list[str]:
        """The names of the client metrics subscriptions (KIP-714)."""
        from braidlog.client.admin.configs import list_client_metrics_resources

        return list_client_metrics_resources(self._driver)

    # Groups

    def list_groups(
        self, *, states: Many[GroupState | str] = (), types: Many[GroupType | str] = ()
    ) -> list[ListedGroup]:
        """All groups, from every broker, by name; or only those in some states, of some types."""
        from braidlog.client.admin.groups import list_groups

        return list_groups(self._driver, states=states, types=types)

    def describe_groups(
        self, groups: Many[str], *, authorized_operations: bool = False
    ) -> Results[str, GroupDescription]:
        """Groups with their members; one that does not exist is a GroupIdNotFoundError."""
        from braidlog.client.admin.groups import describe_groups

        return describe_groups(self._driver, groups, authorized_operations=authorized_operations)

    def delete_groups(self, groups: Many[str]) -> Results[str, None]:
        """Delete groups without members, and with them all that they committed."""
        from braidlog.client.admin.groups import delete_groups

        return delete_groups(self._driver, groups)

    def remove_members(
        self,
        group: str,
        *,
        instance_ids: Many[str] = (),
        member_ids: Many[str] = (),
        reason: str = _REMOVAL_REASON,
    ) -> Results[str, None]:
        """Take members out of a classic group: static ones by instance id, others by member id; all if none is named.

        One that still runs joins again. The keys of the results are the ids given.
        """
        from braidlog.client.admin.groups import remove_members

        return remove_members(self._driver, group, instance_ids=instance_ids, member_ids=member_ids, reason=reason)

    # Offsets of groups

    def list_group_offsets(
        self,
        groups: Many[str] | Mapping[str, Partitions | None],
        *,
        require_stable: bool = False,
    ) -> Results[str, Offsets]:
        """By group what it committed: for all partitions, or for those that a mapping names.

        A partition without a committed offset is left out, and a group that does not exist has none.
        `require_stable` waits for transactions that are about to commit offsets.
        """
        from braidlog.client.admin.group_offsets import list_group_offsets

        return list_group_offsets(self._driver, groups, require_stable=require_stable)

    def alter_group_offsets(
        self, group: str, offsets: ByPartition[int | OffsetAndMetadata]
    ) -> Results[TopicPartition, None]:
        """Commit offsets on behalf of a group without members; one that does not exist comes into being."""
        from braidlog.client.admin.group_offsets import alter_group_offsets

        return alter_group_offsets(self._driver, group, offsets)

    def delete_group_offsets(self, group: str, partitions: Partitions) -> Results[TopicPartition, None]:
        """Forget what a group committed for partitions; those it is reading are refused."""
        from braidlog.client.admin.group_offsets import delete_group_offsets

        return delete_group_offsets(self._driver, group, partitions)

    # Records and offsets of partitions

    def delete_records(self, before: ByPartition[int]) -> Results[TopicPartition, int]:
        """Delete the records before an offset (`ALL_RECORDS`: all); by partition where it now starts."""
        from braidlog.client.admin.records import delete_records

        return delete_records(self._driver, before)

    def list_offsets(
        self,
        at: ByPartition[int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> Results[TopicPartition, ListedOffset]:
        """By partition the offset at an `OffsetSpec`, or of the first record at or after a timestamp."""
        from braidlog.client.admin.records import list_offsets

        return list_offsets(self._driver, at, isolation=isolation)

    # Transactions

    def list_transactions(
        self,
        *,
        states: Many[TransactionState | str] = (),
        producer_ids: Many[int] = (),
        longer_than_ms: int | None = None,
    ) -> list[ListedTransaction]:
        """All transactional ids, from every broker, by name; or those that fit."""
        from braidlog.client.admin.transactions import list_transactions

        return list_transactions(self._driver, states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms)

    def describe_transactions(self, transactional_ids: Many[str]) -> Results[str, TransactionDescription]:
        """Each transactional id with its producer, its state and the partitions of its open transaction."""
        from braidlog.client.admin.transactions import describe_transactions

        return describe_transactions(self._driver, transactional_ids)

    def fence_producers(
        self, transactional_ids: Many[str], *, timeout_ms: int = _FENCING_TIMEOUT_MS
    ) -> Results[str, FencedProducer]:
        """Take ids over, as new producers would: open transactions are aborted, and the producers before are fenced."""
        from braidlog.client.admin.transactions import fence_producers

        return fence_producers(self._driver, transactional_ids, timeout_ms=timeout_ms)

    def describe_producers(self, partitions: Partitions) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
        """By partition the producers that its leader knows, by id."""
        from braidlog.client.admin.transactions import describe_producers

        return describe_producers(self._driver, partitions)

    def coordinated(self, producers: Many[ActiveProducer]) -> dict[ActiveProducer, str]:
        """Of open transactions those that a coordinator will still end, with their transactional ids.

        The others hang: no coordinator knows that they touched the partition, so their markers are never written.
        """
        from braidlog.client.admin.transactions import coordinated

        return coordinated(self._driver, producers)

    def abort_transaction(self, producer: ActiveProducer) -> None:
        """Write an abort marker to one partition: for a transaction that hangs (see `coordinated`)."""
        from braidlog.client.admin.transactions import abort_transaction

        return abort_transaction(self._driver, producer)

    # Access control

    def create_acls(self, acls: Many[Acl]) -> Results[Acl, None]:
        """Add rules; one that is there already is no error."""
        from braidlog.client.admin.acls import create_acls

        return create_acls(self._driver, acls)

    def describe_acls(self, which: AclFilter | None = None) -> list[Acl]:
        """The rules that fit a filter, or all."""
        from braidlog.client.admin.acls import describe_acls

        return describe_acls(self._driver, which)

    def delete_acls(self, filters: Many[AclFilter | Acl]) -> Results[AclFilter | Acl, tuple[Acl, ...]]:
        """Delete the rules that fit filters, or are given themselves; by filter those that are gone."""
        from braidlog.client.admin.acls import delete_acls

        return delete_acls(self._driver, filters)

    # Quotas of clients

    def describe_client_quotas(self, which: QuotaFilter | None = None) -> dict[QuotaEntity, dict[str, float]]:
        """By entity its quotas, of those that fit a filter, or of all. Keys are those of `QuotaKey`."""
        from braidlog.client.admin.quotas import describe_client_quotas

        return describe_client_quotas(self._driver, which)

    def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> Results[QuotaEntity, None]:
        """Change quotas: by entity the new values by key, where None takes a quota away."""
        from braidlog.client.admin.quotas import alter_client_quotas

        return alter_client_quotas(self._driver, changes, validate_only=validate_only)

    # SCRAM users

    def describe_scram_users(self, users: Many[str] | None = None) -> Results[str, tuple[ScramCredential, ...]]:
        """By user (all who have some, unless some are named) the credentials that there are."""
        from braidlog.client.admin.scram import describe_scram_users

        return describe_scram_users(self._driver, users)

    def alter_scram_users(self, changes: Many[ScramUpsertion | ScramDeletion]) -> Results[str, None]:
        """Give users new passwords, or take credentials away; by user whether all that was asked for was done."""
        from braidlog.client.admin.scram import alter_scram_users

        return alter_scram_users(self._driver, changes)

    # Where replicas are, and who leads

    def alter_partition_reassignments(
        self, targets: ByPartition[Sequence[int] | None]
    ) -> Results[TopicPartition, None]:
        """Move partitions: by partition the brokers that shall hold it, or None to cancel its move."""
        from braidlog.client.admin.reassignments import alter_partition_reassignments

        return alter_partition_reassignments(self._driver, targets)

    def list_partition_reassignments(self, partitions: Partitions | None = None) -> dict[TopicPartition, Reassignment]:
        """The moves that are under way, of all partitions or of some."""
        from braidlog.client.admin.reassignments import list_partition_reassignments

        return list_partition_reassignments(self._driver, partitions)

    def elect_leaders(
        self, partitions: Partitions | None = None, kind: ElectionType = ElectionType.PREFERRED
    ) -> Results[TopicPartition, None]:
        """Elect leaders of some partitions, or of all for which there is something to elect.

        A partition that is already led as it should be fails with ElectionNotNeededError.
        """
        from braidlog.client.admin.reassignments import elect_leaders

        return elect_leaders(self._driver, partitions, kind)

    # Directories of brokers

    def describe_log_dirs(
        self, broker_ids: Many[int] | None = None, *, partitions: Partitions | None = None
    ) -> Results[int, tuple[LogDir, ...]]:
        """By broker (all, unless some are named) its directories, with all that lies there or only some partitions."""
        from braidlog.client.admin.log_dirs import describe_log_dirs

        return describe_log_dirs(self._driver, broker_ids, partitions=partitions)

    def alter_replica_log_dirs(self, targets: Mapping[Replica, str]) -> Results[Replica, None]:
        """Move copies to other directories of their brokers; the move goes on after this returns."""
        from braidlog.client.admin.log_dirs import alter_replica_log_dirs

        return alter_replica_log_dirs(self._driver, targets)

    # The cluster and its brokers

    def describe_cluster(
        self, *, authorized_operations: bool = False, fenced_brokers: bool = False
    ) -> ClusterDescription:
        """The cluster's id, its controller and its brokers."""
        from braidlog.client.admin.cluster_description import describe_cluster

        return describe_cluster(
            self._driver, authorized_operations=authorized_operations, fenced_brokers=fenced_brokers
        )

    def broker_api_versions(self, broker_ids: Many[int] | None = None) -> Results[int, tuple[ApiVersionRange, ...]]:
        """By broker (all, unless some are named) the requests that it answers, and in which versions."""
        from braidlog.client.admin.cluster_description import broker_api_versions

        return broker_api_versions(self._driver, broker_ids)

    # Features

    def describe_features(self) -> Features:
        """The features that the cluster has switched on, and those that its brokers support."""
        from braidlog.client.admin.features import describe_features

        return describe_features(self._driver)

    def update_features(
        self, updates: Mapping[str, int | FeatureUpdate], *, validate_only: bool = False
    ) -> Results[str, None]:
        """Change the levels of features: by name the new one."""
        from braidlog.client.admin.features import update_features

        return update_features(self._driver, updates, validate_only=validate_only)

    # Delegation tokens

    def create_delegation_token(
        self,
        *,
        owner: Principal | None = None,
        renewers: Many[Principal] = (),
        max_lifetime_ms: int | None = None,
    ) -> DelegationToken:
        """A token for the user of this connection, or for `owner`. Needs SASL, and a secret on the brokers."""
        from braidlog.client.admin.delegation_tokens import create_delegation_token

        return create_delegation_token(self._driver, owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms)

    def describe_delegation_tokens(self, owners: Many[Principal] | None = None) -> list[DelegationToken]:
        """The tokens of some owners, or all that this connection's user may see."""
        from braidlog.client.admin.delegation_tokens import describe_delegation_tokens

        return describe_delegation_tokens(self._driver, owners)

    def renew_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """Let a token live on; when it now expires, in milliseconds since 1970."""
        from braidlog.client.admin.delegation_tokens import renew_delegation_token

        return renew_delegation_token(self._driver, hmac, period_ms=period_ms)

    def expire_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """End a token, at once or after a time; when it expires, in milliseconds since 1970."""
        from braidlog.client.admin.delegation_tokens import expire_delegation_token

        return expire_delegation_token(self._driver, hmac, period_ms=period_ms)


def admin_over(cluster: ClusterConnection | AdminApiDriver) -> Admin:
    """An Admin on connections that the caller made, and closes."""
    admin = Admin.__new__(Admin)
    admin._servers = "a given cluster"
    admin._driver = cluster if isinstance(cluster, AdminApiDriver) else AdminApiDriver(cluster)
    return admin


def _driver(servers: str, settings: Settings, runtime: ClientRuntime) -> AdminApiDriver:
    def connect() -> ClusterConnection:
        given = {key: settings.value(key) for key in definitions(ADMIN) if settings.is_given(key)}
        given.setdefault("client.id", _CLIENT_ID)
        timeout_s = settings.seconds("request.timeout.ms")
        return ClusterConnection(servers, timeout_s, given, connect=False, runtime=runtime)

    def new_retry(for_s: float) -> Retry:
        return runtime.retry(for_s, settings.seconds("retry.backoff.ms"), settings.seconds("retry.backoff.max.ms"))

    return AdminApiDriver(connect, settings.seconds("default.api.timeout.ms"), new_retry, runtime.clock)
