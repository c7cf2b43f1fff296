"""The face of administration: every call on a cluster, behind one connection, in time."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Unpack

from braidlog.client.admin.acls import AclCalls
from braidlog.client.admin.cluster_description import ClusterCalls
from braidlog.client.admin.configs import ConfigCalls
from braidlog.client.admin.delegation_tokens import DelegationTokenCalls
from braidlog.client.admin.features import FeatureCalls
from braidlog.client.admin.group_offsets import GroupOffsetCalls
from braidlog.client.admin.groups import GroupCalls
from braidlog.client.admin.log_dirs import LogDirCalls
from braidlog.client.admin.quotas import QuotaCalls
from braidlog.client.admin.reassignments import ReassignmentCalls
from braidlog.client.admin.records import RecordCalls
from braidlog.client.admin.routing import Routing
from braidlog.client.admin.scram import ScramCalls
from braidlog.client.admin.topics import TopicCalls
from braidlog.client.admin.transactions import TransactionCalls
from braidlog.client.cluster import Cluster
from braidlog.client.retrying import Retry
from braidlog.client.settings import ADMIN, Settings, definitions
from braidlog.core.errors import UserError

if TYPE_CHECKING:
    from braidlog.client.typed_settings import AdminSettings

_CLIENT_ID: Final = "braidlog-admin"


class Admin(
    TopicCalls,
    ConfigCalls,
    GroupCalls,
    GroupOffsetCalls,
    RecordCalls,
    TransactionCalls,
    AclCalls,
    QuotaCalls,
    ScramCalls,
    ReassignmentCalls,
    LogDirCalls,
    ClusterCalls,
    FeatureCalls,
    DelegationTokenCalls,
):
    """Administers any Kafka-compatible cluster.

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("orders", partitions=6)]).raise_for_errors()

    Settings are Kafka's, in snake case or as a mapping with dotted names. Nothing is connected to before the first
    call. Calls block, each for at most `default.api.timeout.ms`; threads may share an Admin, and their requests take
    turns. What a call on many things answers is a `Results`.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[AdminSettings]) -> None:
        self._settings = Settings.of(ADMIN, config, settings)
        servers = self._settings.items("bootstrap.servers")
        if not servers:
            raise UserError("no bootstrap server given; say bootstrap_servers='HOST:PORT'")
        self._bootstrap = ",".join(servers)
        super().__init__(Routing(self._connect, self._settings.seconds("default.api.timeout.ms"), self._retry))

    def __repr__(self) -> str:
        return f"<Admin of {self._bootstrap}{', closed' if self._routing.is_closed else ''}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("an Admin cannot be copied or pickled; make one where it is used")

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; calls after this are refused."""
        self._routing.close()

    def within(self, seconds: float) -> Admin:
        """The same admin with another deadline: `admin.within(5).list_topics()`."""
        other = Admin.__new__(Admin)
        other._settings, other._bootstrap = self._settings, self._bootstrap
        super(Admin, other).__init__(self._routing.within(seconds))
        return other

    def _connect(self, deadline: float) -> Cluster:
        given = {key: self._settings.value(key) for key in definitions(ADMIN) if self._settings.is_given(key)}
        given.setdefault("client.id", _CLIENT_ID)
        return Cluster(self._bootstrap, self._settings.seconds("request.timeout.ms"), given, deadline)

    def _retry(self, for_s: float) -> Retry:
        return Retry(
            for_s,
            first_pause_s=self._settings.seconds("retry.backoff.ms"),
            longest_pause_s=self._settings.seconds("retry.backoff.max.ms"),
        )
