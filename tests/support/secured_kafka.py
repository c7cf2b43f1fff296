"""Apache Kafka 3.9 with an authorizer, SCRAM users and delegation tokens, and a second node beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.peers.kafka import KafkaBroker, start_kafka

from support.ports import lasting_port

# Two of them run beside everything else.
_JVM = ("-Xmx384M", "-Xms128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class SecuredKafka:
    """Node 1, broker and controller: an open listener for administrators, and one that wants a SCRAM login."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.port = lasting_port()
        self.secured_port = lasting_port()
        self.controller_port = lasting_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.secured = f"127.0.0.1:{self.secured_port}"
        self.directories = (place / "one-a", place / "one-b")

    @contextmanager
    def life(self) -> Iterator[KafkaBroker]:
        open_listener = f"PLAINTEXT://{self.bootstrap},SASL_PLAINTEXT://{self.secured}"
        settings = {
            **self._common(),
            "listeners": f"{open_listener},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": open_listener,
            "log.dirs": ",".join(map(str, self.directories)),
        }
        for directory in self.directories:
            directory.mkdir(parents=True)
        with start_kafka(self.place, self.port, settings, _JVM) as kafka:
            yield kafka

    @contextmanager
    def second_life(self) -> Iterator[KafkaBroker]:
        """Node 2, a broker only; in the same rack as nobody."""
        port = lasting_port()
        directory = self.place / "two"
        directory.mkdir(exist_ok=True)
        settings = {
            **self._common(),
            "process.roles": "broker",
            "node.id": "2",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "broker.rack": "second",
        }
        with start_kafka(directory, port, settings, _JVM) as kafka:
            yield kafka

    def _common(self) -> Mapping[str, str]:
        login = "listener.name.sasl_plaintext.{}.sasl.jaas.config"
        return {
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            login.format("scram-sha-256"): _SCRAM_LOGIN,
            login.format("scram-sha-512"): _SCRAM_LOGIN,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "delegation.token.secret.key": "not-a-secret",
            "auto.leader.rebalance.enable": "false",
            "auto.create.topics.enable": "false",
        }
