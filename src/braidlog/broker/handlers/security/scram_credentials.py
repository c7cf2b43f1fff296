"""DescribeUserScramCredentials (api 50) and AlterUserScramCredentials (api 51), KIP-554."""

from __future__ import annotations

from collections import Counter

from braidlog.broker.authentication.scram_users import ScramUsers
from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.config_changes import ConfigChangeListener
from braidlog.broker.handlers.store_problems import told_to_client
from braidlog.controller.direct_writes import DirectWrites
from braidlog.controller.users.scram_credentials import MECHANISMS, ScramChange, UserChanges
from braidlog.core.protocol_errors import (
    NONE,
    DuplicateResourceError,
    ProtocolError,
    ResourceNotFoundError,
)
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from braidlog.wire.generated.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


class DescribeUserScramCredentialsHandler:
    def __init__(self, users: ScramUsers, authorizer: Authorizer) -> None:
        self._users = users
        self._authorizer = authorizer

    def handle(
        self, request: DescribeUserScramCredentialsRequest, exchange: Exchange
    ) -> DescribeUserScramCredentialsResponse:
        self._authorizer.check_cluster(exchange, AclOperation.DESCRIBE)
        asked = [each.name for each in request.users or ()]
        # An empty list asks for all as well.
        times = Counter(asked or sorted(self._users.users))
        return DescribeUserScramCredentialsResponse(
            error_message=None, results=[self._described(name, count) for name, count in times.items()]
        )

    def _described(self, name: str, times: int) -> DescribeUserScramCredentialsResult:
        found = self._users.users.get(name)
        if times > 1:
            return _refused(
                name,
                DuplicateResourceError(
                    f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
                ),
            )
        if found is None:
            return _refused(
                name, ResourceNotFoundError(f"Attempt to describe a user credential that does not exist: {name}")
            )
        return DescribeUserScramCredentialsResult(
            user=name,
            error_message=None,
            credential_infos=[
                CredentialInfo(mechanism=code, iterations=found[mechanism.name].iterations)
                for code, mechanism in MECHANISMS.items()
                if mechanism.name in found
            ],
        )

    @staticmethod
    def error_response(
        request: DescribeUserScramCredentialsRequest, version: int, error: ProtocolError
    ) -> DescribeUserScramCredentialsResponse:
        # As in Kafka one for each user that was named, but none is named again.
        results = [_refused("", error) for _ in request.users or ()]
        return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=error.message, results=results)


def _refused(name: str, error: ProtocolError) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name, error_code=error.code, error_message=error.message, credential_infos=[]
    )


class AlterUserScramCredentialsHandler:
    """Any broker may write them: a client need not ask the controller, though Kafka's do."""

    def __init__(
        self, direct_writes: DirectWrites, config_changes: ConfigChangeListener, authorizer: Authorizer
    ) -> None:
        self._direct_writes = direct_writes
        self._config_changes = config_changes
        self._authorizer = authorizer

    async def handle(
        self, request: AlterUserScramCredentialsRequest, exchange: Exchange
    ) -> AlterUserScramCredentialsResponse:
        self._authorizer.check_cluster(exchange, AclOperation.ALTER)
        by_user: dict[str, list[ScramChange]] = {}
        for gone in request.deletions:
            by_user.setdefault(gone.name, []).append(ScramChange(gone.mechanism))
        for new in request.upsertions:
            change = ScramChange(new.mechanism, new.iterations, bytes(new.salt), bytes(new.salted_password))
            by_user.setdefault(new.name, []).append(change)
        wanted = [UserChanges(user, tuple(changes)) for user, changes in by_user.items()]
        with told_to_client():
            results = await self._direct_writes.alter_scram_credentials(wanted)
            # Whoever asks this broker next sees what was changed.
            await self._config_changes.catch_up()
        return AlterUserScramCredentialsResponse(results=[_result(user, error) for user, error in results.items()])

    @staticmethod
    def error_response(
        request: AlterUserScramCredentialsRequest, version: int, error: ProtocolError
    ) -> AlterUserScramCredentialsResponse:
        names = dict.fromkeys((*(each.name for each in request.deletions), *(each.name for each in request.upsertions)))
        return AlterUserScramCredentialsResponse(results=[_result(name, error) for name in names])


def _result(user: str, error: ProtocolError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=user,
        error_code=NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
