"""Apache Kafka 3.9.1: the broker (KRaft combined mode, or with ZooKeeper) and its command line tools.

The jars come from Maven Central into `$XDG_CACHE_HOME/braidlog/kafka-3.9.1`. A broker runs with the settings
of Kafka's own `config/kraft/server.properties` and the heap of `bin/kafka-server-start.sh`, on loopback.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.peers.maven import Artifact, PeerMissing, cache_root, fetch_classpath
from tools.peers.process import LoggedProcess

VERSION = "3.9.1"
_LOGGING = Artifact("org.slf4j", "slf4j-reload4j", "1.7.36")
ARTIFACTS = (
    Artifact("org.apache.kafka", "kafka_2.13", VERSION),
    Artifact("org.apache.kafka", "kafka-tools", VERSION),
    _LOGGING,
)
# The last line whose brokers know neither AlterPartition nor topic ids.
OLDER_VERSION = "2.6.3"
# Between them: 2.8 has AlterIsr v0 and version 1 of /feature; 3.4 is the first whose clusters could leave ZooKeeper.
VERSION_2_8 = "2.8.2"
VERSION_3_4 = "3.4.1"

# Names as in Kafka's bin directory, and the class that each script starts in 3.9.
TOOLS: Mapping[str, str] = {
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}

# bin/kafka-server-start.sh and bin/kafka-run-class.sh.
BROKER_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# A tool lives for a second: the quick compiler and the simple collector start it fastest.
TOOL_JVM = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
# kafka-producer-perf-test is itself measured: it gets what bin/kafka-producer-perf-test.sh gives it.
PERFORMANCE_JVM = ("-Xmx512M", *BROKER_JVM[2:])

# What config/kraft/server.properties adds to the built-in defaults.
SHIPPED_SETTINGS: Mapping[str, str] = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}

DEFAULT_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
READY_WITH_ZOOKEEPER = r"\[KafkaServer id=\d+\] started"


def kafka_libs() -> Path:
    """The directory with Kafka's jars, fetched if need be; raises `PeerMissing` with the reason."""
    if shutil.which("java") is None:
        raise PeerMissing("Apache Kafka needs Java (no `java` on the path)")
    return fetch_classpath(f"kafka-{VERSION}", ARTIFACTS)


def older_kafka_libs(version: str = OLDER_VERSION) -> Path:
    """The jars of a broker of an older version; raises `PeerMissing` with the reason."""
    return fetch_classpath(f"kafka-{version}", (Artifact("org.apache.kafka", "kafka_2.13", version), _LOGGING))


def kafka_home() -> tuple[Path | None, str]:
    """Where Kafka is, or None and why it could not be had."""
    try:
        return kafka_libs().parent, ""
    except PeerMissing as missing:
        return None, str(missing)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def java_command(
    main_class: str, arguments: Sequence[str], jvm: Sequence[str], level: str, classpath: str | None = None
) -> list[str]:
    """A Java program that logs as `level` says; the classpath is Kafka's own jars unless another is given."""
    classpath = classpath or f"{kafka_libs()}/*"
    return ["java", *jvm, f"-Dlog4j.configuration={_log4j(level)}", "-cp", classpath, main_class, *arguments]


def _log4j(level: str) -> str:
    """A logging configuration: a broker speaks on standard output, a tool only warns, on standard error."""
    path = cache_root() / f"kafka-{VERSION}" / f"log4j-{level.lower()}.properties"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        target = "System.out" if level == "INFO" else "System.err"
        path.write_text(
            f"log4j.rootLogger={level}, out\n"
            "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            f"log4j.appender.out.Target={target}\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
        )
    return path.as_uri()


def run_tool(
    tool: str,
    arguments: Sequence[str],
    *,
    input_text: str | None = None,
    timeout_s: float = 120.0,
    jvm: Sequence[str] = TOOL_JVM,
) -> subprocess.CompletedProcess[str]:
    """Run a tool by its name in Kafka's bin directory, or any main class, to its end."""
    return subprocess.run(
        java_command(TOOLS.get(tool, tool), arguments, jvm, "WARN"),
        input=input_text if input_text is not None else "",
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


class KafkaBroker:
    """A running Apache Kafka. `process` is its process, `bootstrap` what clients are told."""

    def __init__(self, process: LoggedProcess, port: int, data_dir: Path) -> None:
        self.process = process
        self.port = port
        self.data_dir = data_dir
        self.bootstrap = f"127.0.0.1:{port}"

    def stop(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()


def _write_properties(path: Path, settings: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def _kraft_settings(data_dir: Path, port: int, controller_port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data_dir),
        **SHIPPED_SETTINGS,
    }


def format_storage(properties: Path, cluster_id: str = DEFAULT_CLUSTER_ID) -> None:
    """`kafka-storage format`: what a KRaft data directory needs before its first start."""
    done = run_tool("kafka-storage", ["format", "--ignore-formatted", "-t", cluster_id, "-c", str(properties)])
    if done.returncode != 0:
        raise RuntimeError(f"kafka-storage format failed:\n{done.stdout}{done.stderr}")


@contextmanager
def start_kafka(
    data_dir: Path,
    port: int = 0,
    properties: Mapping[str, str] | None = None,
    jvm: Sequence[str] = BROKER_JVM,
) -> Iterator[KafkaBroker]:
    """A broker and controller in one process, formatted on the first start; leaves with a clean shutdown."""
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="kafka-") as scratch:
        path = Path(scratch) / "server.properties"
        _write_properties(path, {**_kraft_settings(data_dir, port, free_port()), **(properties or {})})
        format_storage(path)
        with LoggedProcess("kafka", java_command("kafka.Kafka", [str(path)], jvm, "INFO")) as process:
            process.wait_for_line(r"Kafka Server started")
            yield KafkaBroker(process, port, data_dir)
            process.terminate()


@contextmanager
def start_zookeeper(data_dir: Path) -> Iterator[int]:
    """A ZooKeeper on loopback; yields its port."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="zookeeper-") as scratch:
        path = Path(scratch) / "zookeeper.properties"
        _write_properties(
            path,
            {
                "dataDir": str(data_dir),
                "clientPort": str(port),
                "clientPortAddress": "127.0.0.1",
                "maxClientCnxns": "0",
                "admin.enableServer": "false",
            },
        )
        server = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = java_command(server, [str(path)], ("-Xmx512M", "-Xms512M"), "INFO")
        with LoggedProcess("zookeeper", command) as process:
            process.wait_for_line(r"PrepRequestProcessor .* started")
            yield port


def zookeeper_create(zookeeper_port: int, nodes: Mapping[str, str]) -> None:
    """Write znodes (parents first) by ZooKeeper's own shell."""
    script = "".join(f"create {path} {_quoted(data)}\n" for path, data in nodes.items())
    shell = "org.apache.zookeeper.ZooKeeperMain"
    done = run_tool(shell, ["-server", f"127.0.0.1:{zookeeper_port}"], input_text=script)
    missing = [path for path in nodes if f"Created {path}\n" not in done.stdout + done.stderr]
    if missing:
        raise RuntimeError(f"ZooKeeper did not create {missing}:\n{done.stdout}{done.stderr}")


def _quoted(data: str) -> str:
    return f"'{data}'" if data else '""'


def kafka_process(
    settings_file: Path,
    jvm: Sequence[str] = BROKER_JVM,
    libs: Path | None = None,
    prefix: Sequence[str] = (),
    log_path: Path | None = None,
) -> LoggedProcess:
    """`kafka-server-start server.properties`, begun; of another version where `libs` has its jars.

    `prefix` are programs that come before the command and become it, as one that enters another network does.
    """
    classpath = None if libs is None else f"{libs}/*"
    command = java_command("kafka.Kafka", [str(settings_file)], jvm, "INFO", classpath)
    return LoggedProcess("kafka", [*prefix, *command], log_path=log_path)


@contextmanager
def start_kafka_with_zookeeper(
    data_dir: Path,
    zookeeper_port: int,
    port: int = 0,
    properties: Mapping[str, str] | None = None,
    jvm: Sequence[str] = BROKER_JVM,
    libs: Path | None = None,
    prefix: Sequence[str] = (),
    log_path: Path | None = None,
) -> Iterator[KafkaBroker]:
    """A broker of the older kind, registered in a running ZooKeeper; the rest as for `kafka_process`."""
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="kafka-") as scratch:
        path = Path(scratch) / "server.properties"
        own = {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(data_dir),
            **SHIPPED_SETTINGS,
        }
        _write_properties(path, {**own, **(properties or {})})
        with kafka_process(path, jvm, libs, prefix, log_path) as process:
            process.wait_for_line(READY_WITH_ZOOKEEPER)
            yield KafkaBroker(process, port, data_dir)
            process.terminate()
