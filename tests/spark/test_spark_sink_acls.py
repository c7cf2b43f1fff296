"""What Apache Kafka must allow an exactly-once sink: no less than docs/spark/sink.md says, and no more."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from braidlog import Admin
from braidlog.client.admin.scram import ScramUpsertion
from braidlog.client.admin.topics import NewTopic
from braidlog.core.errors import UserError
from braidlog.security.acls import Acl, AclOperation, AclResourceType, PatternType
from pyspark_braidlog.sink.clients import committed_offsets, transactional_producer
from pyspark_braidlog.sink.columns import Columns
from pyspark_braidlog.sink.options import Delivery, WriteOptions
from pyspark_braidlog.sink.row_writers import ExactlyOnceWriter, TaskResult
from pyspark_braidlog.sink.target_topics import TargetTopics
from pyspark_braidlog.sink.task_identity import PREFIX, TaskIdentity
from pyspark_braidlog.sink.write_task import TaskCommitMessage
from pyspark_braidlog.sink.writers import check_task_count
from support.secured_kafka import SecuredKafka

pytestmark = pytest.mark.peer

PASSWORD = "of-the-sink"
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
MAY, ON = AclOperation, AclResourceType


@pytest.fixture(scope="module")
def kafka(apache_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    running = SecuredKafka(tmp_path_factory.mktemp("secured"))
    with running.life():
        yield running


class Guarded:
    """A task of a user who may do what is said."""

    def __init__(self, kafka: SecuredKafka, *on_topic: AclOperation) -> None:
        self.topic = f"guarded-{uuid.uuid4().hex}"
        user = f"sink-{self.topic}"
        ours = [
            Acl(ON.TRANSACTIONAL_ID, PREFIX, f"User:{user}", each, pattern_type=PatternType.PREFIXED)
            for each in (MAY.WRITE, MAY.DESCRIBE)
        ]
        ours += [Acl(ON.GROUP, PREFIX, f"User:{user}", MAY.READ, pattern_type=PatternType.PREFIXED)]
        ours += [Acl(ON.TOPIC, self.topic, f"User:{user}", each) for each in on_topic]
        with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            admin.create_topics([NewTopic(self.topic, 1, 1)]).raise_for_errors()
            admin.alter_scram_users([ScramUpsertion(user, PASSWORD)])
            assert admin.create_acls(ours).errors == {}
        self.options = WriteOptions.checked(
            {
                "kafka.bootstrap.servers": kafka.secured,
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "SCRAM-SHA-512",
                "kafka.sasl.jaas.config": f'{LOGIN} username="{user}" password="{PASSWORD}";',
                "topic": self.topic,
            },
            Delivery.EXACTLY_ONCE,
        )

    def write(self) -> TaskResult:
        TargetTopics().check(self.options)
        task = TaskIdentity("q", 0, 0, "run")
        columns = Columns(self.topic, key=False, headers=False, partition=False)
        name = task.name(self.topic)
        with transactional_producer(self.options, name) as producer:
            once = ExactlyOnceWriter(
                producer, lambda group: committed_offsets(self.options, group), lambda: None, task, name, columns
            )
            written = once.write(iter([pa.RecordBatch.from_pydict({"value": ["a", "b"]})]))
        check_task_count(self.options, [TaskCommitMessage(2, task)])
        return written


def test_writing_and_reading_the_topic_is_enough(kafka: SecuredKafka) -> None:
    guarded = Guarded(kafka, MAY.WRITE, MAY.READ)
    assert not guarded.write().skipped
    assert guarded.write().skipped


def test_writing_alone_is_not_for_the_marker_is_an_offset(kafka: SecuredKafka) -> None:
    with pytest.raises(UserError, match="exactly-once takes READ on it besides WRITE"):
        Guarded(kafka, MAY.WRITE).write()
