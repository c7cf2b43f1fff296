"""braidlog's own client."""

from __future__ import annotations

from bench.client import task as shared
from bench.client.task import BATCH, CALL, Stopwatch, Task
from braidlog import Consumer, Producer, TopicPartition


def produce(task: Task, watch: Stopwatch) -> None:
    with Producer(
        bootstrap_servers=task.bootstrap,
        acks="all",
        enable_idempotence=True,
        batch_size=shared.BATCH_BYTES,
        linger_ms=shared.LINGER_MS,
        buffer_memory=shared.BUFFER_BYTES,
    ) as producer:
        payloads = task.payloads()
        for payload in payloads[: shared.WARM_RECORDS]:
            producer.send(task.topic, payload)
        producer.flush()
        topic, sent, most = task.topic, 0, len(payloads)
        watch.start()
        while sent < task.count:
            chunk = min(most, task.count - sent)
            for payload in payloads[:chunk]:
                producer.send(topic, payload)
            sent += chunk
        producer.flush()
        watch.stop(sent)


def consume(task: Task, watch: Stopwatch) -> None:
    with Consumer(
        bootstrap_servers=task.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        check_crcs=True,
        fetch_min_bytes=1,
        fetch_max_wait_ms=shared.FETCH_WAIT_MS,
        fetch_max_bytes=shared.FETCH_MAX_BYTES,
        max_partition_fetch_bytes=shared.PARTITION_FETCH_BYTES,
        max_poll_records=shared.POLL_RECORDS,
    ) as consumer:
        consumer.assign([TopicPartition(task.topic, partition) for partition in range(task.partitions)])
        got = size = 0
        if task.mode == BATCH:
            while not consumer.poll(1.0):
                pass
            watch.start()
            while got < task.count:
                records = consumer.poll(1.0)
                for record in records:
                    size += len(record.value)
                got += len(records)
        elif task.mode == CALL:
            while consumer.poll_one(1.0) is None:
                pass
            watch.start()
            while got < task.count:
                one = consumer.poll_one(1.0)
                if one is not None:
                    size += len(one.value)
                    got += 1
        else:
            next(iter(consumer))
            watch.start()
            for record in consumer:
                size += len(record.value)
                got += 1
                if got >= task.count:
                    break
        watch.stop(got)
        assert size == got * task.size
