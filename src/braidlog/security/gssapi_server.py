"""The broker's side of GSSAPI (RFC 4752) with Kerberos, through the package gssapi.

client   token of the ticket         ⇄   server   token, until both know each other
client   nothing                         server   | layers 1 | largest message 0 u24 |             wrapped
client   | layer 1 | 0 u24 | authorization id |   wrapped

1 is "no layer": what follows is protected by TLS or by nothing, as in Kafka. The user is the ticket's owner, whatever
the client asks to be; some clients put the broker's name there.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, Protocol

from braidlog.core.errors import BraidlogError, UserError
from braidlog.security.kerberos_names import NoMatchingPrincipalRuleError
from braidlog.security.sasl_server import SaslServer, ServerState, refused

MECHANISM: Final = "GSSAPI"
_NO_LAYER: Final = 1
_OFFER: Final = bytes((_NO_LAYER, 0, 0, 0))
_LONGEST_REASON: Final = 300


class GssError(BraidlogError):
    """What the library or the client did wrong; the text is for the broker's log."""


class SecurityContext(Protocol):
    """The accepting side of a context; everything raises GssError."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def initiator(self) -> str: ...

    def step(self, token: bytes) -> bytes: ...

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, message: bytes) -> bytes: ...


class GssapiSaslServer(SaslServer):
    mechanism = MECHANISM

    def __init__(self, context: SecurityContext, user_of: Callable[[str], str]) -> None:
        """`user_of` makes a user of a principal, and raises NoMatchingPrincipalRuleError."""
        super().__init__()
        self._context = context
        self._user_of = user_of
        self._has_offered = False

    def _evaluate(self, message: bytes) -> bytes:
        try:
            return self._step(message)
        except (GssError, NoMatchingPrincipalRuleError) as problem:
            self.reason = str(problem)[:_LONGEST_REASON]
            raise refused(MECHANISM) from None

    def _step(self, message: bytes) -> bytes:
        context = self._context
        if self._has_offered:
            return self._choose(context.unwrap(message))
        if not context.is_complete:
            answer = context.step(message)
            if self.state is ServerState.START:
                self._move(ServerState.CHALLENGED)
            if answer or not context.is_complete:
                return answer
        elif message:
            raise GssError("the client went on after the context was complete")
        self._has_offered = True
        return context.wrap(_OFFER)

    def _choose(self, chosen: bytes) -> bytes:
        if len(chosen) < len(_OFFER) or chosen[0] != _NO_LAYER:
            raise GssError("the client wants a security layer, and only TLS is offered")
        self.user = self._user_of(self._context.initiator)
        self._move(ServerState.COMPLETE)
        return b""


# The package


class Acceptor:
    """The broker's own key, as its keytab has it, with which contexts are accepted."""

    def __init__(self, keytab: str, principal: str) -> None:
        """Raises UserError."""
        try:
            self._gssapi: Any = import_module("gssapi")
        except (ImportError, OSError) as missing:
            raise UserError(
                "GSSAPI (Kerberos) takes the package gssapi, which is not installed: pip install 'braidlog[kerberos]' "
                "(it is compiled against libkrb5-dev); or set sasl.enabled.mechanisms to other mechanisms"
            ) from missing
        self._error: Any = import_module("gssapi.exceptions").GSSError
        try:
            name = self._gssapi.Name(principal, self._gssapi.NameType.kerberos_principal)
            self._credentials = self._gssapi.Credentials(
                name=name, usage="accept", mechs=[self._gssapi.MechType.kerberos], store={"keytab": keytab}
            )
        except self._error as problem:
            raise UserError(f"the key of {principal} cannot be had from the keytab {keytab}: {problem}") from problem

    def new_context(self) -> SecurityContext:
        return _Context(self._gssapi.SecurityContext(creds=self._credentials, usage="accept"), self._error)


class _Context:
    def __init__(self, context: Any, error: type[Exception]) -> None:
        self._context = context
        self._error = error

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    @property
    def initiator(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes) -> bytes:
        return self._told(lambda: self._context.step(token) or b"")

    def wrap(self, message: bytes) -> bytes:
        return self._told(lambda: self._context.wrap(message, False).message)

    def unwrap(self, message: bytes) -> bytes:
        return self._told(lambda: self._context.unwrap(message).message)

    def _told(self, call: Callable[[], bytes]) -> bytes:
        try:
            return bytes(call())
        except self._error as problem:
            raise GssError(str(problem)) from problem
