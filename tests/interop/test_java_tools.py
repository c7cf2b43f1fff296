"""Apache Kafka 3.9's own command line tools."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tools.peers.kafka import run_tool

from support import confluent
from support.broker import Broker, StartBroker
from support.eventually import eventually
from support.samples import BASE_TIMESTAMP_MS, CODECS, Sample, plain_samples

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka")]


def tool(broker: Broker, name: str, *arguments: str, lines: str | None = None) -> str:
    """The tool's output; a failure shows what it said."""
    done = run_tool(name, ["--bootstrap-server", broker.bootstrap, *arguments], input_text=lines)
    assert done.returncode == 0, f"{name} {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


def broker_id(broker: Broker) -> str:
    return str(confluent.admin(broker.bootstrap).list_topics(timeout=30).controller_id)


def test_topics_from_create_to_delete(broker: Broker, topic: str) -> None:
    created = tool(
        broker, "kafka-topics", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "1",
        "--config", "retention.ms=360000", "--config", "cleanup.policy=compact,delete",
    )  # fmt: skip
    assert f"Created topic {topic}." in created
    assert topic in tool(broker, "kafka-topics", "--list").splitlines()

    described = tool(broker, "kafka-topics", "--describe", "--topic", topic)
    head, *partitions = described.strip().splitlines()
    assert re.search(r"TopicId: [\w-]{22}\tPartitionCount: 3\tReplicationFactor: 1\t", head)
    assert set(head.split("Configs: ")[1].split(",")) >= {"retention.ms=360000"}
    me = broker_id(broker)
    assert [
        re.search(r"Partition: (\d)\tLeader: (\d+)\tReplicas: (\d+)\tIsr: (\d+)", p).groups() for p in partitions
    ] == [(str(number), me, me, me) for number in range(3)]  # type: ignore[union-attr]

    tool(broker, "kafka-topics", "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in tool(broker, "kafka-topics", "--describe", "--topic", topic)
    tool(broker, "kafka-topics", "--delete", "--topic", topic)
    assert topic not in tool(broker, "kafka-topics", "--list").splitlines()


def test_topics_says_what_is_wrong(broker: Broker, topic: str) -> None:
    arguments = ["--bootstrap-server", broker.bootstrap]
    tool(broker, "kafka-topics", "--create", "--topic", topic)
    again = run_tool("kafka-topics", [*arguments, "--create", "--topic", topic])
    assert again.returncode == 1
    assert f"Topic '{topic}' already exists." in again.stdout
    tool(broker, "kafka-topics", "--create", "--topic", topic, "--if-not-exists")
    missing = run_tool("kafka-topics", [*arguments, "--describe", "--topic", topic + "-none"])
    assert missing.returncode == 1
    copies = ["--create", "--topic", topic + "-b", "--replication-factor", "3"]
    too_many = run_tool("kafka-topics", [*arguments, *copies])
    assert too_many.returncode == 1
    assert "replication factor" in too_many.stdout.lower()


def test_topic_configs(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    altered = tool(
        broker, "kafka-configs", *of_topic, "--alter",
        "--add-config", "segment.bytes=1048576,cleanup.policy=[compact,delete]",
    )  # fmt: skip
    assert f"Completed updating config for topic {topic}." in altered
    described = tool(broker, "kafka-configs", *of_topic, "--describe")
    assert re.search(
        r"segment.bytes=1048576 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:segment.bytes=1048576, "
        r".*DEFAULT_CONFIG:log.segment.bytes=1073741824\}",
        described,
    )
    assert "cleanup.policy=compact,delete" in described
    tool(broker, "kafka-configs", *of_topic, "--alter", "--delete-config", "segment.bytes")
    assert "segment.bytes=" not in tool(broker, "kafka-configs", *of_topic, "--describe")
    everything = tool(broker, "kafka-configs", *of_topic, "--describe", "--all")
    for name in ("retention.ms=604800000", "max.message.bytes=1048588", "min.insync.replicas=1"):
        assert name in everything


def test_broker_configs(start_broker: StartBroker) -> None:
    broker = start_broker()
    me = broker_id(broker)
    one = ("--entity-type", "brokers", "--entity-name", me)
    tool(broker, "kafka-configs", *one, "--alter", "--add-config", "log.cleaner.threads=2")
    described = tool(broker, "kafka-configs", *one, "--describe")
    assert re.search(
        r"log.cleaner.threads=2 sensitive=false synonyms=\{DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, "
        r"DEFAULT_CONFIG:log.cleaner.threads=1\}",
        described,
    )
    all_brokers = ("--entity-type", "brokers", "--entity-default")
    tool(broker, "kafka-configs", *all_brokers, "--alter", "--add-config", "log.retention.ms=7200000")
    assert "log.retention.ms=7200000" in tool(broker, "kafka-configs", *all_brokers, "--describe")
    confluent.create_topic(broker.bootstrap, "inherits")
    of_topic = ("--entity-type", "topics", "--entity-name", "inherits")
    everything = tool(broker, "kafka-configs", *of_topic, "--describe", "--all")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7200000" in everything
    tool(broker, "kafka-configs", *one, "--alter", "--delete-config", "log.cleaner.threads")
    assert "log.cleaner.threads" not in tool(broker, "kafka-configs", *one, "--describe")


def test_log_levels(start_broker: StartBroker) -> None:
    broker = start_broker()
    logger = "kafka.server.KafkaApis" if broker.is_kafka else "braidlog.dispatch"
    loggers = ("--entity-type", "broker-loggers", "--entity-name", broker_id(broker))
    assert f"{logger}=INFO" in tool(broker, "kafka-configs", *loggers, "--describe")
    tool(broker, "kafka-configs", *loggers, "--alter", "--add-config", f"{logger}=FATAL")
    assert f"{logger}=FATAL" in tool(broker, "kafka-configs", *loggers, "--describe")
    tool(broker, "kafka-configs", *loggers, "--alter", "--delete-config", logger)
    described = tool(broker, "kafka-configs", *loggers, "--describe")
    assert f"{logger}=INFO" in described
    assert "root=INFO" in described
    arguments = ["--bootstrap-server", broker.bootstrap, *loggers, "--alter", "--add-config"]
    wrong = run_tool("kafka-configs", [*arguments, f"{logger}=LOUD"])
    assert wrong.returncode == 1
    assert "not a supported log level" in wrong.stdout + wrong.stderr


@pytest.mark.parametrize("codec", CODECS)
def test_console_producer_and_consumer(broker: Broker, topic: str, codec: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    lines = "".join(f"k{number}\tvalue {number}\n" for number in range(20))
    tool(
        broker, "kafka-console-producer", "--topic", topic, "--compression-codec", codec,
        "--property", "parse.key=true", lines=lines,
    )  # fmt: skip
    read = tool(
        broker, "kafka-console-consumer", "--topic", topic, "--partition", "0", "--offset", "earliest",
        "--max-messages", "20", "--property", "print.key=true",
    )  # fmt: skip
    assert read == lines
    part = tool(
        broker, "kafka-console-consumer", "--topic", topic, "--partition", "0", "--offset", "17",
        "--max-messages", "3", "--property", "print.offset=true",
    )  # fmt: skip
    assert part.splitlines() == [f"Offset:{n}\tvalue {n}" for n in (17, 18, 19)]


@pytest.mark.parametrize("codec", CODECS)
def test_dump_log_reads_our_files(broker: Broker, topic: str, codec: str) -> None:
    samples = [Sample(b"key", b"first", (("h", b"x"),)), *plain_samples(99)]
    sender = confluent.producer(broker.bootstrap, compression_type=codec, enable_idempotence=True)
    confluent.send(sender, topic, samples)
    segment = broker.data_dir / f"{topic}-0" / "00000000000000000000.log"
    dumped = run_tool("kafka-dump-log", ["--files", str(segment), "--deep-iteration", "--print-data-log"]).stdout
    records = re.findall(r"^\| offset: (\d+) .*payload: (.*)$", dumped, re.MULTILINE)
    assert [int(offset) for offset, _ in records] == list(range(100))
    assert [payload.encode("latin-1", "replace")[:2] for _, payload in records[1:]] == [
        (s.value or b"")[:2] for s in samples[1:]
    ]
    batches = re.findall(r"^baseOffset: .*$", dumped, re.MULTILINE)
    assert batches
    for batch in batches:
        assert "isvalid: true" in batch
        assert f"compresscodec: {codec}" in batch
        assert "partitionLeaderEpoch: 0" in batch
        assert "producerEpoch: 0" in batch


def test_dump_log_finds_our_indexes_sane(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker()
    confluent.create_topic(broker.bootstrap, topic, segment_bytes="200000", index_interval_bytes="1024")
    sender = confluent.producer(broker.bootstrap, batch_num_messages=20, enable_idempotence=True)
    confluent.send(sender, topic, plain_samples(4000))
    broker.stop()
    directory = broker.data_dir / f"{topic}-0"
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 2

    def dump(files: list[Path], *arguments: str) -> str:
        names = ",".join(map(str, files))
        done = run_tool("kafka-dump-log", ["--files", names, *arguments])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    for kind in ("index", "timeindex"):
        files = sorted(directory.glob(f"*.{kind}"))
        assert len(files) == len(segments)
        assert "offset:" in dump(files[:1])
        sane = dump(files, "--index-sanity-check")
        assert sane.count("passed sanity check") == len(files)
        verified = dump(files, "--verify-index-only")
        assert "mismatch" not in verified.lower()
        assert "Non-" not in verified
    snapshots = sorted(directory.glob("*.snapshot"))
    assert snapshots
    assert "producerId: " in dump(snapshots[-1:])


def test_producer_perf_test(broker: Broker, topic: str) -> None:
    done = run_tool(
        "kafka-producer-perf-test",
        [
            "--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1",
            "--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all", "compression.type=lz4",
        ],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"20000 records sent, [\d.]+ records/sec", done.stdout), done.stdout
    assert len(confluent.read_all(broker.bootstrap, topic)) == 20000


def test_get_offsets_and_delete_records(broker: Broker, topic: str, tmp_path: Path) -> None:
    samples = plain_samples(30)
    samples.insert(10, samples.pop())  # the newest timestamp is not the last record
    confluent.send(confluent.producer(broker.bootstrap), topic, samples)

    def offset(time: str) -> str:
        return tool(broker, "kafka-get-offsets", "--topic", topic, "--time", time).strip()

    assert offset("latest") == f"{topic}:0:30"
    assert offset("earliest") == f"{topic}:0:0"
    assert offset("max-timestamp") == f"{topic}:0:10"
    assert offset(str(BASE_TIMESTAMP_MS + 20)) == f"{topic}:0:10"

    request = tmp_path / "delete.json"
    request.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 12}]}))
    deleted = tool(broker, "kafka-delete-records", "--offset-json-file", str(request))
    assert re.search(r"partition: \S+-0\s+low_watermark: 12", deleted)
    assert offset("earliest") == f"{topic}:0:12"


def test_log_dirs(broker: Broker, topic: str) -> None:
    confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(10))
    said = tool(broker, "kafka-log-dirs", "--describe", "--topic-list", topic)
    answer = json.loads(said.strip().splitlines()[-1])
    directory = answer["brokers"][0]["logDirs"][0]
    assert directory["logDir"] == str(broker.data_dir)
    assert directory["error"] is None
    partition = directory["partitions"][0]
    assert partition["partition"] == f"{topic}-0"
    assert partition["size"] == (broker.data_dir / f"{topic}-0" / "00000000000000000000.log").stat().st_size
    assert (partition["offsetLag"], partition["isFuture"]) == (0, False)


def test_leader_election_and_reassignment(broker: Broker, topic: str, tmp_path: Path) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    elected = tool(
        broker, "kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0"
    )
    assert f"Valid replica already elected for partitions {topic}-0" in elected
    plan = tmp_path / "plan.json"
    me = int(broker_id(broker))
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [me]}]}))
    started = tool(broker, "kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--execute")
    assert f"Successfully started partition reassignment for {topic}-0" in started

    def verified() -> bool:
        said = tool(broker, "kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--verify")
        return f"Reassignment of partition {topic}-0 is completed." in said

    eventually(verified)


def test_cluster_id_and_api_versions(broker: Broker) -> None:
    reported = run_tool("kafka-cluster", ["cluster-id", "--bootstrap-server", broker.bootstrap]).stdout
    admin = confluent.admin(broker.bootstrap)
    assert reported.strip() == f"Cluster ID: {admin.list_topics(timeout=30).cluster_id}"
    said = tool(broker, "kafka-broker-api-versions")
    assert re.search(r"Produce\(0\): \d+ to (9|1\d) \[usable: \d+\]", said)
    assert re.search(r"Fetch\(1\): \d+ to 1\d \[usable: 17\]", said)
    assert "UNSUPPORTED" not in said.split("Produce(0)")[1].split("\n")[0]
