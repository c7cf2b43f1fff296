"""Spark beyond one process, on loopback: a standalone master with a worker, and a Spark Connect server.

All from the classes that the PySpark package brings; nothing is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark
from tools.peers.kafka import free_port
from tools.peers.process import LoggedProcess

_HOME = Path(pyspark.__file__).parent
_HOST = "127.0.0.1"
_READY_S = 240.0


class SparkCluster(NamedTuple):
    master: str
    work: Path

    def executors(self) -> list[str]:
        """Those that the worker has started so far, as "application/number"."""
        return sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in self.work.glob("app-*/*/stderr"))


def _environment(place: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    own = {
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(place),
    }
    return {**os.environ, **own, **(more or {})}


@contextmanager
def _program(name: str, arguments: list[str], ready: str, environment: Mapping[str, str]) -> Iterator[None]:
    command = [str(_HOME / "bin" / "spark-class"), *arguments]
    with LoggedProcess(name, command, env=environment) as process:
        process.wait_for_line(ready, timeout_s=_READY_S)
        yield
        process.terminate()


@contextmanager
def standalone_cluster(place: Path, cores: int = 2) -> Iterator[SparkCluster]:
    """A master, and one worker whose executors get their Python from the environment, as on any machine."""
    port = free_port()
    master = ["org.apache.spark.deploy.master.Master", "--host", _HOST, "--port", str(port), "--webui-port", "0"]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", _HOST, "--webui-port", "0"]
    worker += ["--cores", str(cores), "--memory", "2g", "--work-dir", str(place / "work"), f"spark://{_HOST}:{port}"]
    environment = _environment(place)
    with (
        _program("spark-master", master, "Starting Spark master at", environment),
        _program("spark-worker", worker, "Successfully registered with master", environment),
    ):
        yield SparkCluster(f"spark://{_HOST}:{port}", place / "work")


@contextmanager
def connect_server(place: Path, master: str = "local[2]") -> Iterator[str]:
    """Yields the address for `SparkSession.builder.remote`."""
    port = free_port()
    settings = {
        "spark.master": master,
        "spark.connect.grpc.binding.address": _HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": _HOST,
        "spark.driver.bindAddress": _HOST,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    arguments = ["org.apache.spark.deploy.SparkSubmit", "--class", server]
    for key, value in settings.items():
        arguments += ["--conf", f"{key}={value}"]
    # A daemon to Spark's launcher, but one that runs the tasks.
    environment = _environment(place, {"SPARK_DAEMON_MEMORY": "1g"})
    with _program("spark-connect", [*arguments, "spark-internal"], "Spark Connect server started", environment):
        yield f"sc://{_HOST}:{port}"
