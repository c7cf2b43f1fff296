"""Starts a broker as a user would, by its command: braidlog, or Apache Kafka as the oracle."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.peers.kafka import start_kafka
from tools.peers.process import LoggedProcess

READY = r"ready on .*:(\d+)"
BRAIDLOG = "braidlog"
KAFKA = "kafka"


class Broker:
    """A running broker: where clients find it, its process and its files."""

    def __init__(self, kind: str, process: LoggedProcess, port: int, data_dir: Path) -> None:
        self.kind = kind
        self.process = process
        self.port = port
        self.data_dir = data_dir
        self.bootstrap = f"127.0.0.1:{port}"

    @property
    def is_kafka(self) -> bool:
        return self.kind == KAFKA

    def stop(self) -> int:
        """SIGTERM: drains, checkpoints, leaves the clean-shutdown marker."""
        return self.process.terminate()

    def kill(self) -> None:
        """SIGKILL: a crash."""
        self.process.kill()

    def rss_bytes(self) -> int:
        return self.process.rss_bytes()

    def log(self) -> str:
        return self.process.log()

    @property
    def http_port(self) -> int:
        """The port of `/metrics`, `/healthz` and `/readyz` (braidlog only)."""
        return int(self.process.wait_for_line(r"metrics and health on http://\S+:(\d+)/")[1])


StartBroker = Callable[..., Broker]


def serve_command(
    data_dir: Path, port: int = 0, settings: Mapping[str, str] | None = None, arguments: Sequence[str] = ()
) -> list[str]:
    """`braidlog serve …` with this interpreter, so that the tests need no installed script."""
    command = [sys.executable, "-m", "braidlog", "serve", "--data", str(data_dir)]
    command += ["--listen", f"127.0.0.1:{port}"]
    # Several brokers run beside each other in tests: each takes a free port for its metrics, too.
    for key, value in {"braidlog.http.listen": "127.0.0.1:0", **(settings or {})}.items():
        command += ["--set", f"{key}={value}"]
    return [*command, *arguments]


@contextmanager
def start_braidlog(
    data_dir: Path,
    settings: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    prefix: Sequence[str] = (),
    preexec: Callable[[], None] | None = None,
) -> Iterator[Broker]:
    """A braidlog process that is ready; killed on leaving unless the test stopped it.

    `prefix` puts a program in front (strace, unshare); `BRAIDLOG_PURE` is inherited from the tests' run.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
    command = [*prefix, *serve_command(data_dir, port, settings, arguments)]
    with LoggedProcess("braidlog", command, env=environment, preexec=preexec) as process:
        ready = process.wait_for_line(READY)
        yield Broker(BRAIDLOG, process, int(ready[1]), data_dir)


@contextmanager
def start_target(kind: str, data_dir: Path, settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """The broker that interop scenarios run against; both kinds take the same settings."""
    if kind == KAFKA:
        data_dir.mkdir(parents=True, exist_ok=True)
        with start_kafka(data_dir, 0, settings) as kafka:
            yield Broker(KAFKA, kafka.process, kafka.port, data_dir)
    else:
        with start_braidlog(data_dir, settings) as broker:
            yield broker
            if broker.process.returncode is None:
                assert broker.stop() == 0, f"braidlog did not stop cleanly:\n{broker.log()}"
