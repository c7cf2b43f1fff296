"""Which tokens a listener with OAUTHBEARER takes, as its settings say.

    sasl.oauthbearer.jwks.endpoint.url       signed ones, verified with the keys found there
    unsecured… options in sasl.jaas.config   unsigned ones, where no keys are named: for development

Each with `listener.name.<listener>.` or `listener.name.<listener>.oauthbearer.` before it, or for all listeners. Kafka
takes unsigned tokens where nothing is said; here somebody has to ask for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from braidlog.broker.authentication.verification_keys import JwksEndpoint, VerificationKeys, check_key_set
from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.config.definitions.security import UNSECURED_TOKENS
from braidlog.core.errors import UserError
from braidlog.security.json_web_keys import JsonWebKeySet, require_cryptography
from braidlog.security.oauthbearer import MECHANISM
from braidlog.security.token_validation import (
    SignedTokenValidator,
    TokenRules,
    TokenValidator,
    UnsecuredTokenValidator,
)

_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"


def takes_unsigned(settings: BrokerSettings, listener: str, jaas_options: Mapping[str, str]) -> bool:
    handler = settings.get_for_mechanism(listener, MECHANISM, "sasl.server.callback.handler.class")
    if handler or settings.get_for_mechanism(listener, MECHANISM, _URL):
        return handler == UNSECURED_TOKENS
    return any(name.startswith("unsecured") for name in jaas_options)


def token_validator(
    settings: BrokerSettings,
    listener: str,
    jaas_options: Mapping[str, str],
    verification_keys: Callable[[], VerificationKeys] | None,
) -> TokenValidator:
    """Without keys one that lets nobody in, made to find mistakes; raises UserError that names the setting."""
    keys = None if verification_keys is None else verification_keys()
    rules = _rules(settings, listener)
    if takes_unsigned(settings, listener, jaas_options):
        if rules.audience or rules.issuer:
            what = "audience" if rules.audience else "issuer"
            raise UserError(
                f"the listener {listener} takes unsigned tokens, for which sasl.oauthbearer.expected.{what} has no "
                f"effect: set {_URL} to have tokens verified, or remove it"
            )
        return UnsecuredTokenValidator(jaas_options, (lambda: 0) if keys is None else keys.clock.wall_ms)
    endpoint = _endpoint(settings, listener)
    require_cryptography()
    if keys is None:
        check_key_set(endpoint.url)
        return SignedTokenValidator(rules, JsonWebKeySet, lambda: 0)
    found = keys.of(endpoint)
    return SignedTokenValidator(rules, lambda: found.keys, keys.clock.wall_ms, found.unknown_key)


def _endpoint(settings: BrokerSettings, listener: str) -> JwksEndpoint:
    def seconds(key: str) -> float:
        value = settings.get_for_mechanism(listener, MECHANISM, key)
        assert isinstance(value, int)
        return value / 1000

    url = settings.get_for_mechanism(listener, MECHANISM, _URL)
    if not isinstance(url, str) or not url:
        raise UserError(
            f"the listener {listener} offers OAUTHBEARER and cannot verify tokens: set {_URL} to the keys of who "
            "issues them (https://…, file://…); or take unsigned tokens, for development, with "
            'unsecuredValidatorAllowableClockSkewMs="3000" in '
            f"{known.mechanism_key(listener, MECHANISM, 'sasl.jaas.config')}"
        )
    return JwksEndpoint(
        url,
        seconds("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        seconds("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        seconds("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    )


def _rules(settings: BrokerSettings, listener: str) -> TokenRules:
    def text(key: str) -> str:
        value = settings.get_for_mechanism(listener, MECHANISM, key)
        return value if isinstance(value, str) else ""

    audience = settings.get_for_mechanism(listener, MECHANISM, "sasl.oauthbearer.expected.audience")
    skew_s = settings.get_for_mechanism(listener, MECHANISM, "sasl.oauthbearer.clock.skew.seconds")
    assert isinstance(skew_s, int)
    return TokenRules(
        audience=audience if isinstance(audience, tuple) else (),
        issuer=text("sasl.oauthbearer.expected.issuer") or None,
        scope_claim=text("sasl.oauthbearer.scope.claim.name"),
        sub_claim=text("sasl.oauthbearer.sub.claim.name"),
        clock_skew_s=skew_s,
    )
