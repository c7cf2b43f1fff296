"""What every admin client has, whatever its families of calls: settings, a connection when first asked, a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from braidlog.client.admin.api_driver import AdminApiDriver, AdminCalls
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.backoff import Retry
from braidlog.client.settings import ADMIN, Settings, definitions
from braidlog.core.errors import UserError

if TYPE_CHECKING:
    from braidlog.client.typed_settings import AdminSettings

_CLIENT_ID: Final = "braidlog-admin"


class AdminClient(AdminCalls):
    """Base of `Admin`; and of those that need a few families and should not pay for importing the others."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[AdminSettings]) -> None:
        self._settings = Settings.of(ADMIN, config, settings)
        servers = self._settings.items("bootstrap.servers")
        if not servers:
            raise UserError("no bootstrap server given; say bootstrap_servers='HOST:PORT'")
        self._bootstrap = ",".join(servers)
        super().__init__(AdminApiDriver(self._connect, self._settings.seconds("default.api.timeout.ms"), self._retry))

    def __repr__(self) -> str:
        return f"<Admin of {self._bootstrap}{', closed' if self._driver.is_closed else ''}>"

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
        other._settings, other._bootstrap = self._settings, self._bootstrap
        super(AdminClient, other).__init__(self._driver.within(seconds))
        return other

    def _connect(self, deadline: float) -> ClusterConnection:
        given = {key: self._settings.value(key) for key in definitions(ADMIN) if self._settings.is_given(key)}
        given.setdefault("client.id", _CLIENT_ID)
        return ClusterConnection(self._bootstrap, self._settings.seconds("request.timeout.ms"), given, deadline)

    def _retry(self, for_s: float) -> Retry:
        return Retry(
            for_s,
            first_pause_s=self._settings.seconds("retry.backoff.ms"),
            longest_pause_s=self._settings.seconds("retry.backoff.max.ms"),
        )
