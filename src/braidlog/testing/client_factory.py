"""Topics and clients for tests, of whatever `bootstrap_servers` names."""

from __future__ import annotations

import itertools
import os
import re
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

if TYPE_CHECKING:
    from braidlog.client.admin.admin import Admin
    from braidlog.client.admin.cluster_connection import ClusterConnection
    from braidlog.client.consumer.consumer import Consumer
    from braidlog.client.producer.producer import Producer
    from braidlog.client.typed_settings import AdminSettings, ConsumerSettings, ProducerSettings

_TOPIC_TIMEOUT_S: Final = 30.0
# The name of a topic may have 249 characters; the number that makes it unique needs some.
_LONGEST_PREFIX: Final = 200

_numbers = itertools.count(1)
_run = secrets.token_hex(3)


class ClientFactory:
    """What a broker and a cluster under test have in common: both are reached at `bootstrap_servers`."""

    def __init__(self) -> None:
        # How to close each, and whether that can be given a time.
        self._clients: list[tuple[Callable[..., None], bool]] = []

    @property
    def bootstrap_servers(self) -> str:
        raise NotImplementedError

    def close_clients(self, patience_s: float) -> None:
        """What they have left to log can be read only while the pipe is open."""
        problems: list[Exception] = []
        while self._clients:
            close, takes_time = self._clients.pop()
            try:
                close(patience_s) if takes_time else close()
            except Exception as problem:
                problems.append(problem)
        if problems:
            raise problems[0]

    # Topics

    def unique_topic(self, prefix: str = "test") -> str:
        """A topic name that is used nowhere else; nothing is created."""
        return unique_topic(prefix)

    def create_topic(self, name: str | None = None, partitions: int = 1, **configs: object) -> str:
        """Create a topic of one replica, under a unique name if none is given; returns the name.

        `configs` are the topic's, with underscores for dots: `cleanup_policy="compact"`, `retention_ms=1000`.
        """
        from braidlog.client.admin.admin import admin_over
        from braidlog.client.admin.topics import NewTopic

        name = unique_topic() if name is None else name
        with self._cluster() as cluster:
            wanted = NewTopic(name, partitions, 1, config_texts(configs))
            admin_over(cluster).create_topics([wanted]).raise_for_errors()
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until it is gone."""
        from braidlog.client.admin.admin import admin_over

        with self._cluster() as cluster:
            admin_over(cluster).delete_topics([name]).raise_for_errors()

    def _cluster(self) -> ClusterConnection:
        from braidlog.client.admin.cluster_connection import ClusterConnection

        return ClusterConnection(self._setup_servers, _TOPIC_TIMEOUT_S)

    @property
    def _setup_servers(self) -> str:
        """Where topics and users are made: the same, or a listener that asks for nothing."""
        return self.bootstrap_servers

    def _client_defaults(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap_servers}

    # Clients of braidlog's own; closed with the broker at the latest

    def producer(self, **settings: Unpack[ProducerSettings]) -> Producer:
        from braidlog.client.producer.producer import Producer

        producer = Producer(**{**self._client_defaults(), **settings})
        self._clients.append((producer.close, True))
        return producer

    def consumer(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> Consumer:
        """A consumer; of these topics from their beginning, unless the settings say otherwise.

        Without `group_id` it reads all of their partitions by itself.
        """
        from braidlog.client.consumer.consumer import Consumer

        consumer = Consumer(*topics, **{**self._client_defaults(), "auto_offset_reset": "earliest", **settings})
        self._clients.append((consumer.close, True))
        return consumer

    def admin(self, **settings: Unpack[AdminSettings]) -> Admin:
        from braidlog.client.admin.admin import Admin

        admin = Admin(**{**self._client_defaults(), **settings})
        self._clients.append((admin.close, False))
        return admin


def unique_topic(prefix: str = "test") -> str:
    """A legal name that was never given before, in this process or another."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", prefix).strip("-") or "test"
    return f"{stem[:_LONGEST_PREFIX]}-{_run}-{os.getpid()}-{next(_numbers)}"


def config_texts(configs: Mapping[str, object]) -> dict[str, str]:
    """`retention_ms=1000` and `{"retention.ms": 1000}` say the same; True and False as Kafka writes them."""
    return {
        name if "." in name else name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in configs.items()
    }
