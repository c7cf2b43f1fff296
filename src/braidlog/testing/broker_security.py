"""TLS and users of a broker under test: the settings of its listener, and those of clients in each library's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from braidlog.client.admin.scram import ScramMechanism

Library = Literal["braidlog", "confluent-kafka", "java", "kafka-python", "aiokafka"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
LIBRARIES: Final[tuple[Library, ...]] = ("braidlog", "confluent-kafka", "java", "kafka-python", "aiokafka")
MECHANISMS: Final[tuple[Mechanism, ...]] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_LIFETIME: Final = timedelta(days=2)
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# What an option of a login module may be called.
_WORD: Final = re.compile(r"[^\s=;\"']+")


@dataclass(frozen=True, slots=True)
class BrokerSecurity:
    """`tls` is True, False or "mutual": clients have a certificate, too. With `users` clients log in.

    The listener is called CLIENTS. The broker has a second one for setting it up, which is open.
    """

    tls: bool | Literal["mutual"] = False
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    mechanism: Mechanism = "SCRAM-SHA-512"

    def __post_init__(self) -> None:
        if self.tls not in (True, False, "mutual"):
            raise ValueError(f"tls is {self.tls!r}; it may be True, False or 'mutual'")
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"mechanism is {self.mechanism!r}; there are {', '.join(MECHANISMS)}")
        if self.mechanism == "PLAIN" and not all(_WORD.fullmatch(name) for name in self.users):
            raise ValueError("a user of PLAIN has no blank, quote, semicolon or equals sign in its name; SCRAM's may")

    @property
    def is_needed(self) -> bool:
        return bool(self.tls or self.users)

    @property
    def protocol(self) -> str:
        if self.users:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"

    @property
    def scram_mechanism(self) -> ScramMechanism | None:
        """None where users are in the broker's settings, or there are none."""
        if not self.users or self.mechanism == "PLAIN":
            return None
        from braidlog.client.admin.scram import ScramMechanism

        return ScramMechanism[self.mechanism.replace("-", "_")]

    def make_certificates(self, directory: Path) -> None:
        """Once: clients of a broker that was restarted trust it still."""
        if not self.tls or directory.exists():
            return
        from braidlog.security.certificate_authority import CertificateAuthority

        authority = CertificateAuthority("braidlog.testing", datetime.now(UTC), _LIFETIME)
        directory.mkdir(mode=0o700)
        _trusted(directory).write_text(authority.own.certificate)
        _own(directory, "broker").write_text(authority.issue("broker", _HOSTS).bundle)
        _own(directory, "client").write_text(authority.issue("client").bundle)

    def settings(self, directory: Path) -> dict[str, str]:
        """Of the broker, its addresses apart."""
        settings = {
            "listener.security.protocol.map": f"CLIENTS:{self.protocol},SETUP:PLAINTEXT",
            "inter.broker.listener.name": "SETUP",
        }
        if self.tls:
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(_own(directory, "broker")),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(_trusted(directory)),
                "listener.name.clients.ssl.client.auth": "required" if self.tls == "mutual" else "none",
            }
        if self.users:
            settings["listener.name.clients.sasl.enabled.mechanisms"] = self.mechanism
            # A test of a wrong password need not wait.
            settings["connection.failed.authentication.delay.ms"] = "0"
        if self.users and self.mechanism == "PLAIN":
            users = " ".join(f"user_{name}={_quoted(password)}" for name, password in self.users.items())
            settings["listener.name.clients.plain.sasl.jaas.config"] = f"{_LOGIN_MODULES['PLAIN']} required {users};"
        return settings

    def client_settings(self, library: Library, user: str | None, directory: Path) -> dict[str, Any]:
        """Without the address; `user` is the first one if none is named."""
        if user is not None and user not in self.users:
            raise ValueError(f"there is no user {user!r}; there are: {', '.join(self.users) or 'none'}")
        if library not in LIBRARIES:
            raise ValueError(f"library is {library!r}; there are {', '.join(LIBRARIES)}")
        name = user if user is not None else next(iter(self.users), None)
        if library in ("kafka-python", "aiokafka"):
            settings = self._python_settings(library, directory)
            names = ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password")
        else:
            settings = self._dotted_settings(library, directory)
            names = ("sasl.mechanism", "sasl.username", "sasl.password")
        if name is not None and library == "java":
            kind = "PLAIN" if self.mechanism == "PLAIN" else "SCRAM"
            login = f"username={_quoted(name)} password={_quoted(self.users[name])}"
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": f"{_LOGIN_MODULES[kind]} required {login};",
            }
        elif name is not None:
            settings |= zip(names, (self.mechanism, name, self.users[name]), strict=True)
        if library == "braidlog":
            return {key.replace(".", "_"): value for key, value in settings.items()}
        return settings

    def _dotted_settings(self, library: Library, directory: Path) -> dict[str, Any]:
        settings: dict[str, Any] = {"security.protocol": self.protocol}
        trusted, own = str(_trusted(directory)), str(_own(directory, "client"))
        if library == "confluent-kafka":
            trust = {"ssl.ca.location": trusted}
            identity = {"ssl.certificate.location": own, "ssl.key.location": own}
        else:
            trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": trusted}
            identity = {"ssl.keystore.type": "PEM", "ssl.keystore.location": own}
        if self.tls:
            settings |= trust
        if self.tls == "mutual":
            settings |= identity
        return settings

    def _python_settings(self, library: Library, directory: Path) -> dict[str, Any]:
        settings: dict[str, Any] = {"security_protocol": self.protocol}
        trusted, own = str(_trusted(directory)), str(_own(directory, "client"))
        if self.tls and library == "kafka-python":
            settings["ssl_cafile"] = trusted
            if self.tls == "mutual":
                settings |= {"ssl_certfile": own, "ssl_keyfile": own}
        elif self.tls:
            import ssl

            settings["ssl_context"] = context = ssl.create_default_context(cafile=trusted)
            if self.tls == "mutual":
                context.load_cert_chain(own)
        return settings


def _trusted(directory: Path) -> Path:
    return directory / "ca.crt"


def _own(directory: Path, who: str) -> Path:
    return directory / f"{who}.pem"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
