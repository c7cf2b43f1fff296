"""In fsync mode (flush.messages=1) no acknowledgement leaves before the fdatasync that covers it has returned.

The system calls say it: for each connection that produces, the responses sent so far never outnumber the batches that
were in the log when a sync began that has returned since.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from braidlog.wire.apis import encode_request
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.broker import start_braidlog
from support.confluent import create_topic
from support.raw import RawConnection
from support.syscalls import Step, steps, traced

CALLS = "fdatasync,fsync,write,writev,pwritev,pwritev2,sendto,sendmsg,sendfile"
REQUESTS = 60
AT_ONCE = 4


class Producer:
    """One connection that writes to one partition, a few requests in flight, all of the same size."""

    def __init__(self, port: int, topic: str, partition: int, acks: int) -> None:
        self.log = f"{topic}-{partition}/"
        batch = build_batch([Record(value=b"x" * 50)])
        self.batch_size = len(batch)
        self.response_size = 0
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
        self._frame = b"".join(bytes(part) for part in encode_request(0, 9, 7, "synced", request).parts())
        self._connection = RawConnection(port)
        self.port = self._connection.local_port

    def run(self) -> None:
        for _ in range(REQUESTS // AT_ONCE):
            self._connection.send_bytes(self._frame * AT_ONCE)
            for _ in range(AT_ONCE):
                answer = self._connection.receive_frame()
                assert answer is not None
                self.response_size = len(answer) + 4
        self._connection.close()


@dataclass
class Durability:
    """What is known of one log and of the connection that writes to it, while the calls are read."""

    producer: Producer
    written: int = 0
    # Bytes written when each running sync began, oldest first.
    syncing: list[int] = field(default_factory=list)
    synced: int = 0
    answered: int = 0
    syncs: int = 0
    too_early: list[str] = field(default_factory=list)
    synced_at_send: int = 0

    def see(self, step: Step) -> None:
        if f"/{self.producer.log}" in step.target and step.target.endswith(".log"):
            self._see_log(step)
        elif step.target.startswith("TCP") and f":{self.producer.port}]" in step.target:
            self._see_connection(step)

    def _see_log(self, step: Step) -> None:
        if step.name in ("fdatasync", "fsync"):
            if step.result is None:
                self.syncing.append(self.written)
            else:
                assert step.result == 0
                self.synced = max(self.synced, self.syncing.pop(0))
                self.syncs += 1
        elif step.result is not None and step.result > 0:
            self.written += step.result

    def _see_connection(self, step: Step) -> None:
        if step.result is None:
            self.synced_at_send = self.synced
            return
        # How much a send took is known when it returns, but it may have told only of what was synced when it began.
        self.answered += step.result
        answers = self.answered // self.producer.response_size
        batches = self.synced_at_send // self.producer.batch_size
        if answers > batches:
            self.too_early.append(f"{answers} answers with {batches} batches synced")


def observe(tmp_path: Path, **config: str) -> list[Durability]:
    """Several producers at once against a traced broker, and what the trace tells of each."""
    trace = tmp_path / "trace"
    prefix = traced(trace, CALLS)
    with start_braidlog(tmp_path / "data", {"braidlog.http.listen": ""}, prefix=prefix) as broker:
        create_topic(broker.bootstrap, "synced", 4, **config)
        producers = [Producer(broker.port, "synced", index, acks) for index, acks in enumerate((-1, 1, -1, 1))]
        threads = [threading.Thread(target=producer.run, name=producer.log) for producer in producers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert broker.stop() == 0, broker.log()
    logs = [Durability(producer) for producer in producers]
    for step in steps(trace):
        for log in logs:
            log.see(step)
    for log in logs:
        assert log.answered == REQUESTS * log.producer.response_size, "the trace has all answers"
        assert log.written == REQUESTS * log.producer.batch_size, "the trace has all writes"
    return logs


def test_no_acknowledgement_before_the_covering_fdatasync(tmp_path: Path) -> None:
    for log in observe(tmp_path, flush_messages="1"):
        assert not log.too_early, f"{log.producer.log}: {log.too_early[:3]}"
        assert 0 < log.syncs <= REQUESTS + 1, "a sync covers every batch that was written before it began"


def test_the_observer_sees_acknowledgements_that_no_sync_covers(tmp_path: Path) -> None:
    """Without fsync mode the same trace must look different, else the test above would prove nothing."""
    assert all(log.too_early for log in observe(tmp_path))
