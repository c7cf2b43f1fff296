"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken (apis 38 to 41).

Any broker serves them, as in Kafka on ZooKeeper. Only who has logged in otherwise than with a token may ask.
"""

from __future__ import annotations

from braidlog.broker.authentication.delegation_tokens import DelegationTokenManager
from braidlog.broker.authentication.sasl_authenticator import SaslServerAuthenticator
from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.handlers.store_problems import told_to_client
from braidlog.cluster.token_records import TokenInformation
from braidlog.controller.users import delegation_tokens as rules
from braidlog.core.principal import USER, Principal
from braidlog.core.protocol_errors import (
    DelegationTokenAuthDisabledError,
    DelegationTokenRequestNotAllowedError,
    InvalidPrincipalTypeError,
    ProtocolError,
)
from braidlog.net.channel import ANONYMOUS, Channel
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from braidlog.wire.generated.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from braidlog.wire.generated.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from braidlog.wire.generated.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

_NO_TIME = -1
# The first version that tells who asked for a token.
_TELLS_REQUESTER = 3


class CreateDelegationTokenHandler:
    def __init__(self, tokens: DelegationTokenManager | None, authorizer: Authorizer) -> None:
        self._tokens = tokens
        self._authorizer = authorizer

    async def handle(self, request: CreateDelegationTokenRequest, exchange: Exchange) -> CreateDelegationTokenResponse:
        requester = Principal(USER, exchange.channel.principal)
        owner = requester
        if request.owner_principal_name:
            owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
        renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
        response = CreateDelegationTokenResponse(
            principal_type=owner.type,
            principal_name=owner.name,
            issue_timestamp_ms=_NO_TIME,
            expiry_timestamp_ms=_NO_TIME,
            max_timestamp_ms=_NO_TIME,
        )
        if exchange.version >= _TELLS_REQUESTER:
            response.token_requester_principal_type, response.token_requester_principal_name = requester
        try:
            _check_may_ask(exchange.channel)
            if not owner.type:
                raise InvalidPrincipalTypeError(f"the owner {owner.name} has no type")
            if owner != requester:
                self._authorizer.check(exchange, AclOperation.CREATE_TOKENS, AclResourceType.USER, str(owner))
            rules.check_renewers(renewers)
            tokens = _enabled(self._tokens)
            with told_to_client():
                token = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
        except ProtocolError as error:
            response.error_code = error.code
            return response
        response.issue_timestamp_ms = token.issued_ms
        response.expiry_timestamp_ms = token.expires_ms
        response.max_timestamp_ms = token.ends_ms
        response.token_id = token.token_id
        response.hmac = tokens.hmac(token.token_id)
        return response

    @staticmethod
    def error_response(
        request: CreateDelegationTokenRequest, version: int, error: ProtocolError
    ) -> CreateDelegationTokenResponse:
        return CreateDelegationTokenResponse(error_code=error.code)


class RenewDelegationTokenHandler:
    def __init__(self, tokens: DelegationTokenManager | None) -> None:
        self._tokens = tokens

    async def handle(self, request: RenewDelegationTokenRequest, exchange: Exchange) -> RenewDelegationTokenResponse:
        _check_may_ask(exchange.channel)
        who = Principal(USER, exchange.channel.principal)
        with told_to_client():
            expires_ms = await _enabled(self._tokens).renew(bytes(request.hmac), who, request.renew_period_ms)
        return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)

    @staticmethod
    def error_response(
        request: RenewDelegationTokenRequest, version: int, error: ProtocolError
    ) -> RenewDelegationTokenResponse:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=_NO_TIME)


class ExpireDelegationTokenHandler:
    def __init__(self, tokens: DelegationTokenManager | None) -> None:
        self._tokens = tokens

    async def handle(self, request: ExpireDelegationTokenRequest, exchange: Exchange) -> ExpireDelegationTokenResponse:
        _check_may_ask(exchange.channel)
        who = Principal(USER, exchange.channel.principal)
        with told_to_client():
            expires_ms = await _enabled(self._tokens).expire(bytes(request.hmac), who, request.expiry_time_period_ms)
        return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)

    @staticmethod
    def error_response(
        request: ExpireDelegationTokenRequest, version: int, error: ProtocolError
    ) -> ExpireDelegationTokenResponse:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=_NO_TIME)


class DescribeDelegationTokenHandler:
    def __init__(self, tokens: DelegationTokenManager | None, authorizer: Authorizer) -> None:
        self._tokens = tokens
        self._authorizer = authorizer

    def handle(self, request: DescribeDelegationTokenRequest, exchange: Exchange) -> DescribeDelegationTokenResponse:
        _check_may_ask(exchange.channel)
        tokens = _enabled(self._tokens)
        owners = None
        if request.owners is not None:
            owners = [Principal(each.principal_type, each.principal_name) for each in request.owners]
        return DescribeDelegationTokenResponse(
            tokens=[
                _described(token, tokens.hmac(token.token_id), exchange.version)
                for token in tokens.tokens.values()
                if rules.concerns(token, owners) and self._may_see(token, exchange)
            ]
        )

    def _may_see(self, token: TokenInformation, exchange: Exchange) -> bool:
        """Whose token it is, and who renews it or asked for it; others with a right to the token, or to its owner's."""
        if rules.concerns(token, [Principal(USER, exchange.channel.principal)]):
            return True
        authorize = self._authorizer.authorize
        return authorize(
            exchange, AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id
        ) or authorize(exchange, AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, str(token.owner))

    @staticmethod
    def error_response(
        request: DescribeDelegationTokenRequest, version: int, error: ProtocolError
    ) -> DescribeDelegationTokenResponse:
        return DescribeDelegationTokenResponse(error_code=error.code, tokens=[])


def _described(token: TokenInformation, hmac: bytes, version: int) -> DescribedDelegationToken:
    described = DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.ends_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in token.renewers
        ],
    )
    if version >= _TELLS_REQUESTER:
        described.token_requester_principal_type, described.token_requester_principal_name = token.requester
    return described


def _check_may_ask(channel: Channel) -> None:
    """A token must not beget tokens, and nobody has one who is not known."""
    login = channel.authenticator
    if isinstance(login, SaslServerAuthenticator):
        if login.is_by_token:
            raise DelegationTokenRequestNotAllowedError("a client that logged in with a delegation token gets no other")
    elif channel.principal == ANONYMOUS:
        raise DelegationTokenRequestNotAllowedError("delegation tokens are for clients that have logged in")


def _enabled(tokens: DelegationTokenManager | None) -> DelegationTokenManager:
    if tokens is None:
        raise DelegationTokenAuthDisabledError("this broker has no delegation.token.secret.key")
    return tokens
