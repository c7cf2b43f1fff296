"""The Java client, Kafka's tools, kcat and bare requests log in and are refused, by us as by Apache Kafka 3.9."""

from __future__ import annotations

import re
import subprocess
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tools.peers.java import JavaPrograms
from tools.peers.kafka import kafka_libs, run_tool
from tools.peers.kcat import kcat_path
from tools.peers.maven import PeerMissing

from braidlog.security import scram
from braidlog.wire.generated.metadata import MetadataRequest
from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest
from braidlog.wire.message import Message
from support.broker import BRAIDLOG, KAFKA
from support.guarded_broker import PASSWORD, USER, GuardedBroker, start_guarded
from support.java_programs import SOURCES
from support.login_scenarios import MECHANISMS, OK, SCENARIOS, Login, librdkafka_properties, property_file
from support.raw import RawConnection

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka")]

KINDS = (BRAIDLOG, KAFKA)


@pytest.fixture(scope="module")
def brokers(apache_kafka: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, GuardedBroker]]:
    place = tmp_path_factory.mktemp("guarded")
    for kind in KINDS:
        (place / kind).mkdir()
    with start_guarded(KAFKA, place / KAFKA) as theirs, start_guarded(BRAIDLOG, place / BRAIDLOG) as ours:
        yield {KAFKA: theirs, BRAIDLOG: ours}


# The Java client


class Told(NamedTuple):
    outcome: str
    text: str


@pytest.fixture(scope="module")
def java(brokers: dict[str, GuardedBroker], tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Told]:
    """By broker and scenario what the Java client says: one program runs them all."""
    place = tmp_path_factory.mktemp("properties")
    files = {
        str(property_file(login, broker, place / f"{kind}-{number}.properties")): (kind, name)
        for kind, broker in brokers.items()
        for number, (name, login) in enumerate(SCENARIOS.items())
    }
    try:
        programs = JavaPrograms(kafka_libs(), [SOURCES / "LoginScenarios.java"])
    except PeerMissing as missing:
        pytest.skip(str(missing))
    done = subprocess.run(programs.command("LoginScenarios", *files), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 2]
    return {files[file]: Told(outcome, text) for file, outcome, text in lines}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_java_client(java: dict[tuple[str, str], Told], name: str) -> None:
    ours = java[BRAIDLOG, name]
    assert ours.outcome == SCENARIOS[name].outcome, ours.text
    assert _neutral(ours.text) == _neutral(java[KAFKA, name].text)


def _neutral(text: str) -> str:
    """Without what no two runs share."""
    return re.sub(r"\d+", "N", re.sub(r"\S+://\S+", "ADDRESS", text))


# Kafka's tools


def test_kafkas_tools(brokers: dict[str, GuardedBroker], tmp_path: Path) -> None:
    broker = brokers[BRAIDLOG]

    def run(login: Login, tool: str, *words: str) -> subprocess.CompletedProcess[str]:
        config = property_file(login, broker, tmp_path / "client.properties")
        address = ("--bootstrap-server", broker.at(login.listener), "--command-config", str(config))
        return run_tool(tool, [*address, *words])

    created = run(SCENARIOS["SCRAM-SHA-512 over TLS"], "kafka-topics", "--create", "--topic", "made-by-tools")
    assert "Created topic made-by-tools." in created.stdout, created.stderr
    users = ("--entity-type", "users", "--entity-name", "bob", "--alter", "--add-config")
    added = run(SCENARIOS["PLAIN"], "kafka-configs", *users, "SCRAM-SHA-256=[password=b0b]")
    assert "Completed updating config for user bob." in added.stdout, added.stderr
    as_bob = replace(SCENARIOS["SCRAM-SHA-256"], user="bob", password="b0b")
    for login in (as_bob, SCENARIOS["mutual TLS"]):
        listed = run(login, "kafka-topics", "--list")
        assert "made-by-tools" in listed.stdout.split(), listed.stderr
    refused = run(SCENARIOS["SCRAM-SHA-256, wrong password"], "kafka-topics", "--list")
    assert refused.returncode == 1
    assert "SaslAuthenticationException" in refused.stdout + refused.stderr


# kcat


@pytest.mark.parametrize("name", SCENARIOS)
def test_kcat(brokers: dict[str, GuardedBroker], kcat: str, name: str) -> None:
    login = SCENARIOS[name]
    ours, theirs = (_kcat_says(login, brokers[kind]) for kind in KINDS)
    assert ours == theirs
    assert (ours == OK) == (login.outcome == OK)


# How librdkafka calls a refusal in its log.
_REFUSED = re.compile(r"FAIL\|.*?: ((?:SASL|SSL|Unsupported|Local: SSL|Client SSL).*?)(?: \(after \d+ms .*)?$")


def _kcat_says(login: Login, broker: GuardedBroker) -> str:
    """OK, or the first line in which it is refused: then it would try again until its time is over."""
    settings = [word for pair in librdkafka_properties(login, broker).items() for word in ("-X", "=".join(pair))]
    with subprocess.Popen(
        [kcat_path(), "-b", broker.at(login.listener), "-L", "-m", "60", *settings],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        try:
            said = []
            for line in process.stderr:
                said.append(line)
                if found := _REFUSED.search(line):
                    process.kill()
                    return _neutral(found[1])
            return OK if process.wait() == 0 else "".join(said)
        finally:
            watchdog.cancel()


# Bare requests: codes and texts


class Bare:
    """One connection to a listener; what is answered is noted, a closed connection as well."""

    def __init__(self, broker: GuardedBroker, listener: str) -> None:
        self._connection = RawConnection(broker.ports[listener], "localhost")
        self.noted: list[object] = []

    def ask(self, name: str, version: int, request: Message) -> Any:
        try:
            answer: Any = self._connection.ask(name, version, request)
        except (AssertionError, OSError):
            self.noted.append("closed")
            return None
        return answer

    def handshake(self, mechanism: str, version: int = 1) -> None:
        answer = self.ask("SaslHandshake", version, SaslHandshakeRequest(mechanism=mechanism))
        if answer is not None:
            # Kafka keeps them in no order, and offers one more here.
            self.noted.append((answer.error_code, sorted({*answer.mechanisms} - {"OAUTHBEARER"})))

    def authenticate(self, token: bytes, version: int = 2) -> bytes:
        answer = self.ask("SaslAuthenticate", version, SaslAuthenticateRequest(auth_bytes=token))
        if answer is None:
            return b""
        self.noted.append((answer.error_code, answer.error_message, answer.session_lifetime_ms))
        return bytes(answer.auth_bytes)

    def metadata(self) -> None:
        answer = self.ask("Metadata", 1, MetadataRequest(topics=[]))
        if answer is not None:
            self.noted.append(("metadata", len(answer.brokers)))

    def token(self, token: bytes) -> None:
        """As after a handshake of version 0: a bare frame."""
        self._connection.send_frame(token)
        answer = self._connection.receive_frame()
        self.noted.append("closed" if answer is None else answer)

    def scram(self, mechanism: scram.Mechanism, user: str, password: str) -> None:
        first = f"n={user},r=fyko+d2lbbFgONRv9qkxdawL"
        challenge = self.authenticate(f"n,,{first}".encode()).decode()
        if not challenge:
            return
        # Not compared: an unknown user is refused at once by Kafka, and like a wrong password by us.
        self.noted.pop()
        parsed = scram.parse_challenge(challenge)
        final = f"c=biws,r={parsed.nonce}"
        key = scram.client_key(mechanism, scram.salted_password(mechanism, password, parsed.salt, parsed.iterations))
        signed = scram.signature(mechanism, scram.stored_key(mechanism, key), f"{first},{challenge},{final}")
        self.authenticate(f"{final},p={b64encode(scram.xor(key, signed)).decode()}".encode())

    def close(self) -> None:
        self._connection.close()


def plain(user: str, password: str, authorization: str = "") -> bytes:
    return f"{authorization}\0{user}\0{password}".encode()


def _with_plain(token: bytes) -> Callable[[Bare], None]:
    def run(bare: Bare) -> None:
        bare.handshake("PLAIN")
        bare.authenticate(token)
        bare.metadata()

    return run


def _with_scram(name: str, user: str, password: str) -> Callable[[Bare], None]:
    def run(bare: Bare) -> None:
        bare.handshake(name)
        bare.scram(scram.MECHANISMS[name], user, password)
        bare.metadata()

    return run


def _with_scram_bytes(*tokens: bytes) -> Callable[[Bare], None]:
    def run(bare: Bare) -> None:
        bare.handshake("SCRAM-SHA-256")
        for token in tokens:
            bare.authenticate(token)
        bare.metadata()

    return run


def _bare_handshake(token: bytes) -> Callable[[Bare], None]:
    def run(bare: Bare) -> None:
        bare.handshake("PLAIN", 0)
        bare.token(token)

    return run


def _steps(*steps: Callable[[Bare], Any]) -> Callable[[Bare], None]:
    def run(bare: Bare) -> None:
        for step in steps:
            step(bare)

    return run


EXCHANGES: dict[str, tuple[str, Callable[[Bare], None]]] = {
    "PLAIN": ("SASL", _with_plain(plain(USER, PASSWORD))),
    "PLAIN, wrong password": ("SASL", _with_plain(plain(USER, "wr0ng"))),
    "PLAIN, unknown user": ("SASL", _with_plain(plain("mallory", PASSWORD))),
    "PLAIN as somebody else": ("SASL", _with_plain(plain(USER, PASSWORD, "bob"))),
    "PLAIN without a user": ("SASL", _with_plain(plain("", PASSWORD))),
    "PLAIN without a password": ("SASL", _with_plain(plain(USER, ""))),
    "PLAIN, nothing": ("SASL", _with_plain(b"")),
    "PLAIN, too few parts": ("SASL", _with_plain(b"alice")),
    "PLAIN, too many parts": ("SASL", _with_plain(plain(USER, PASSWORD) + b"\0more")),
    **{f"{each}": ("SASL", _with_scram(each, USER, PASSWORD)) for each in MECHANISMS[1:]},
    **{f"{each}, wrong password": ("SASL", _with_scram(each, USER, "wr0ng")) for each in MECHANISMS[1:]},
    **{f"{each}, unknown user": ("SASL", _with_scram(each, "mallory", PASSWORD)) for each in MECHANISMS[1:]},
    "SCRAM, garbage first": ("SASL", _with_scram_bytes(b"garbage")),
    "SCRAM as somebody else": ("SASL", _with_scram_bytes(b"n,a=bob,n=alice,r=abcdefgh")),
    "SCRAM with channel binding": ("SASL", _with_scram_bytes(b"p=tls-unique,,n=alice,r=abcdefgh")),
    "mechanism not offered": ("SCRAMONLY", _steps(lambda bare: bare.handshake("PLAIN"), Bare.metadata)),
    "mechanism in lower case": ("SASL", _steps(lambda bare: bare.handshake("plain"), Bare.metadata)),
    "mechanism without a name": ("SASL", _steps(lambda bare: bare.handshake(""))),
    "a request before the login": ("SASL", Bare.metadata),
    "no handshake": ("SASL", lambda bare: bare.authenticate(plain(USER, PASSWORD))),
    "two handshakes": ("SASL", _steps(*[lambda bare: bare.handshake("PLAIN")] * 2)),
    "a request between handshake and login": ("SASL", _steps(lambda bare: bare.handshake("PLAIN"), Bare.metadata)),
    "version 0, sound": ("SASL", _bare_handshake(plain(USER, PASSWORD))),
    "version 0, wrong password": ("SASL", _bare_handshake(plain(USER, "wr0ng"))),
    "handshake where none is wanted": ("PLAINTEXT", _steps(lambda bare: bare.handshake("PLAIN"), Bare.metadata)),
    "login where none is wanted": ("PLAINTEXT", _steps(lambda bare: bare.authenticate(b"x"), Bare.metadata)),
    "a session": ("RENEWED", _with_plain(plain(USER, PASSWORD))),
}


# What we answer otherwise, and why it may be so is in docs/DIFFERENCES.md.
OFFERED = (0, sorted(MECHANISMS))
DIFFERENT = {
    "a request between handshake and login": [OFFERED, "closed"],
    "login where none is wanted": [(34, "the listener PLAINTEXT asks for no login", 0), ("metadata", 1)],
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_bare_requests(brokers: dict[str, GuardedBroker], name: str) -> None:
    listener, run = EXCHANGES[name]
    noted = {}
    for kind in KINDS:
        bare = Bare(brokers[kind], listener)
        try:
            run(bare)
        finally:
            bare.close()
        noted[kind] = bare.noted
    assert noted[BRAIDLOG] == DIFFERENT.get(name, noted[KAFKA])
    assert name not in DIFFERENT or noted[KAFKA] != DIFFERENT[name], "no longer a difference"
