"""The exchange of GSSAPI with a context that is a fake; `tests/interop/test_kerberos_logins.py` has a real one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import SaslAuthenticationFailedError
from braidlog.security import gssapi_server
from braidlog.security.gssapi_server import Acceptor, GssapiSaslServer, GssError
from braidlog.security.kerberos_names import parse_principal_rules
from braidlog.security.sasl_server import ServerState

NAMER = parse_principal_rules(["DEFAULT"], "EXAMPLE.COM")


class Context:
    """Wants `steps` tokens that say so; wraps by marking."""

    initiator = "alice@EXAMPLE.COM"

    def __init__(self, steps: int = 1, *, answers_at_the_end: bool = True) -> None:
        self._left = steps
        self._answers_at_the_end = answers_at_the_end

    @property
    def is_complete(self) -> bool:
        return self._left == 0

    def step(self, token: bytes) -> bytes:
        if token != b"ticket":
            raise GssError("Ticket not valid")
        self._left -= 1
        return b"token" if self._left or self._answers_at_the_end else b""

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped:" + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"wrapped:"):
            raise GssError("A token had an invalid MIC")
        return message.removeprefix(b"wrapped:")


def server(context: Context | None = None) -> GssapiSaslServer:
    return GssapiSaslServer(context or Context(), NAMER.name_of)


CHOSEN = b"wrapped:\x01\0\0\0whoever"


def test_a_login() -> None:
    broker = server()
    assert broker.evaluate(b"ticket") == b"token"
    assert broker.evaluate(b"") == b"wrapped:\x01\0\0\0"
    assert broker.state is ServerState.CHALLENGED
    assert broker.user == ""
    assert broker.evaluate(CHOSEN) == b""
    assert broker.is_complete
    assert (broker.user, broker.expires_ms) == ("alice", None)


def test_contexts_of_other_lengths() -> None:
    short = server(Context(answers_at_the_end=False))
    assert short.evaluate(b"ticket") == b"wrapped:\x01\0\0\0"
    assert short.evaluate(CHOSEN) == b""
    long = server(Context(3))
    assert [long.evaluate(b"ticket") for _ in range(3)] == [b"token"] * 3
    assert long.evaluate(b"") == b"wrapped:\x01\0\0\0"
    assert long.evaluate(CHOSEN) == b""
    assert long.user == "alice"


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([b"stolen"], "Ticket not valid"),
        ([b""], "Ticket not valid"),
        ([b"ticket", b"more"], "went on after"),
        ([b"ticket", b"", b"\x01\0\0\0"], "invalid MIC"),
        ([b"ticket", b"", b"wrapped:"], "security layer"),
        ([b"ticket", b"", b"wrapped:\x01"], "security layer"),
        ([b"ticket", b"", b"wrapped:\x02\0\0\0"], "security layer"),
        ([b"ticket", b"", b"wrapped:\x04\0\0\0"], "security layer"),
    ],
)
def test_what_lets_nobody_in(messages: list[bytes], why: str) -> None:
    broker = server()
    for message in messages[:-1]:
        broker.evaluate(message)
    with pytest.raises(SaslAuthenticationFailedError, match="invalid credentials with SASL mechanism GSSAPI"):
        broker.evaluate(messages[-1])
    assert broker.state is ServerState.FAILED
    assert why in broker.reason


def test_a_principal_that_is_no_user() -> None:
    context = Context()
    context.initiator = "alice@ELSEWHERE.COM"
    broker = server(context)
    broker.evaluate(b"ticket")
    broker.evaluate(b"")
    with pytest.raises(SaslAuthenticationFailedError):
        broker.evaluate(CHOSEN)
    assert "applies to 'alice@ELSEWHERE.COM'" in broker.reason
    assert broker.user == ""


@given(st.lists(st.binary() | st.sampled_from([b"ticket", b"", b"wrapped:"]), max_size=4))
def test_whatever_comes_lets_nobody_in(messages: list[bytes]) -> None:
    broker = server()
    for message in messages:
        try:
            broker.evaluate(message)
        except SaslAuthenticationFailedError:
            break
    assert not broker.is_complete


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(gssapi_server, "import_module", missing)
    with pytest.raises(UserError, match=r"pip install 'braidlog\[kerberos\]'"):
        Acceptor("/nowhere", "kafka/localhost@EXAMPLE.COM")
