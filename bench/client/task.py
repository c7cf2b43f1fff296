"""What one measurement is to do, how its time is taken, and the settings that all clients share."""

from __future__ import annotations

import resource
import time
from typing import Any, Final, NamedTuple

# The same for every client, as far as it knows the setting.
BATCH_BYTES: Final = 64 * 1024
LINGER_MS: Final = 5
BUFFER_BYTES: Final = 64 << 20
FETCH_MAX_BYTES: Final = 50 << 20
PARTITION_FETCH_BYTES: Final = 1 << 20
FETCH_WAIT_MS: Final = 500
POLL_RECORDS: Final = 500
# Records sent, or asked to be read, before the clock starts: connections, metadata, producer ids.
WARM_RECORDS: Final = 100

SHARED: Final = {
    "producers": f"acks=all, idempotence on, batches of {BATCH_BYTES // 1024} KiB, linger {LINGER_MS} ms, "
    f"{BUFFER_BYTES >> 20} MiB of buffer where it can be set, no compression, no keys, four partitions",
    "consumers": "assigned the four partitions, no group, CRCs checked, "
    f"{PARTITION_FETCH_BYTES >> 20} MiB a partition and {FETCH_MAX_BYTES >> 20} MiB a fetch, "
    f"batch calls ask for {POLL_RECORDS} records",
}

ONE, CALL, BATCH = "one", "call", "batch"


class Task(NamedTuple):
    client: str
    action: str
    # ONE: each record by itself, as a program would write the loop. CALL: a call that returns one record, where the
    # loop would not use it. BATCH: many by one call, where the client has such a call.
    mode: str
    bootstrap: str
    topic: str
    partitions: int
    size: int
    count: int

    def payloads(self) -> list[bytes]:
        """Different ones, so that nothing is cached by identity; made before the clock starts."""
        filler = bytes(32 + number % 95 for number in range(self.size))
        return [(b"%08d" % number + filler)[: self.size] for number in range(1000)]


class Stopwatch:
    """Wall time and the process's own processor time, user and system, of all of its threads."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.records = 0
        self._began = 0.0
        self._cpu_began = 0.0

    def start(self) -> None:
        self._cpu_began = _cpu_seconds()
        self._began = time.perf_counter()

    def stop(self, records: int) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu_seconds = _cpu_seconds() - self._cpu_began
        self.records = records

    def as_json(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds, "records": self.records}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
