"""A ParallelConsumer as a process: `python -m support.parallel_member <plan as JSON>`.

Prints `key number` for every record when its handler begins and `done key number` when it ends; SIGTERM stops it as a
well-behaved program would, SIGKILL does what it does.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from typing import Any

from braidlog.client import Consumer, ParallelConsumer
from braidlog.client.consumer.record import ConsumerRecord


def say(line: str) -> None:
    """One write, whole or not at all."""
    os.write(1, line.encode() + b"\n")


def handle(record: ConsumerRecord) -> None:
    say(f"begin {record.key.decode()} {record.value.decode()}")
    # As long as a record may take, so that many are under way whenever something happens.
    time.sleep(random.random() * 0.02)
    say(f"done {record.key.decode()} {record.value.decode()}")


def main(plan: dict[str, Any]) -> None:
    with Consumer(
        {
            "bootstrap.servers": plan["bootstrap"],
            "group.id": plan["group"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 300,
            **plan.get("settings", {}),
        }
    ) as consumer:
        parallel = ParallelConsumer(
            consumer, handle, workers=8, max_in_flight=100, commit_interval=0.05, ordering=plan.get("ordering", "key")
        )
        signal.signal(signal.SIGTERM, lambda *_: parallel.stop())
        parallel.subscribe([plan["topic"]]).run()
    say("ended")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
