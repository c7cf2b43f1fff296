"""A distributed worker of Kafka Connect, with the file source and sink, asked over its HTTP port."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest
from tools.peers.java import file_connector_libs
from tools.peers.kafka import TOOL_JVM, free_port, java_command, kafka_libs
from tools.peers.maven import PeerMissing
from tools.peers.process import LoggedProcess

READY_WITHIN_S: Final = 120.0


class Worker:
    """Its topics have so many `replicas`; sources write each record exactly once."""

    def __init__(self, bootstrap: str, group: str, place: Path, replicas: int = 1) -> None:
        try:
            connectors = file_connector_libs()
        except PeerMissing as missing:
            pytest.skip(str(missing))
        self.port = free_port()
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.topic": f"{group}-offsets",
            "config.storage.topic": f"{group}-configs",
            "status.storage.topic": f"{group}-status",
            "offset.storage.replication.factor": str(replicas),
            "offset.storage.partitions": "3",
            "config.storage.replication.factor": str(replicas),
            "status.storage.replication.factor": str(replicas),
            "status.storage.partitions": "2",
            "offset.flush.interval.ms": "500",
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.discovery": "only_scan",
            "plugin.path": str(connectors),
            "session.timeout.ms": "3000",
            "heartbeat.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "1000",
            "exactly.once.source.support": "enabled",
        }
        path = place / f"worker-{self.port}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        classpath = os.pathsep.join(f"{libs}/*" for libs in (kafka_libs(), connectors))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self.process = LoggedProcess("connect", java_command(main, [str(path)], TOOL_JVM, "WARN", classpath))

    def ask(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def answers(self, path: str, body: Any = None) -> Any:
        """The answer, or None while the worker is not ready to give one."""
        assert self.process.returncode is None, self.process.log()
        try:
            return self.ask(path, body)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None
