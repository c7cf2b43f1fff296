"""The kinds of topics that a simulated broker has, what is changed about them, and how the broker itself is set."""

from __future__ import annotations

from random import Random
from typing import Final

from support.simulation.history import Kind

DIRECTORIES: Final = ("/data", "/more")
FOREVER: Final = {"retention.ms": "-1"}
KINDS: Final = (
    Kind("plain", {**FOREVER, "segment.bytes": "1500", "index.interval.bytes": "200"}),
    Kind("synced", {**FOREVER, "flush.messages": "1", "segment.bytes": "2000"}, synced=True),
    Kind("synced", {**FOREVER, "flush.messages": "1", "segment.ms": "3000", "preallocate": "true"}, synced=True),
    Kind("flushed", {**FOREVER, "flush.ms": "3000", "segment.ms": "4000", "segment.jitter.ms": "2000"}),
    Kind(
        "retained",
        {"retention.bytes": "3000", "segment.bytes": "1000", "file.delete.delay.ms": "1500"},
        retained=True,
    ),
    Kind(
        "compacted",
        {
            **FOREVER,
            "cleanup.policy": "compact",
            "segment.bytes": "1200",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "5000",
            "file.delete.delay.ms": "1000",
        },
        compacted=True,
    ),
    Kind(
        "stamped",
        {**FOREVER, "message.timestamp.type": "LogAppendTime", "compression.type": "gzip", "segment.bytes": "3000"},
    ),
)
CHANGES: Final = (
    ("segment.bytes", ("700", "1500", "8000")),
    ("index.interval.bytes", ("0", "100", "4096")),
    ("segment.ms", ("2000", "60000")),
    ("segment.index.bytes", ("64", "4096")),
    ("preallocate", ("true", "false")),
)


def settings_for(seed: int) -> dict[str, str]:
    """One or two data directories, housekeeping often or seldom."""
    random = Random(f"settings of {seed}")
    directories = DIRECTORIES if random.random() < 0.5 else DIRECTORIES[:1]
    pace = random.choice([1, 1, 8, 40])
    return {
        "log.dirs": ",".join(directories),
        "log.retention.check.interval.ms": str(1000 * pace),
        "log.flush.scheduler.interval.ms": str(1000 * pace),
        "log.flush.offset.checkpoint.interval.ms": str(2000 * pace),
        "log.flush.start.offset.checkpoint.interval.ms": str(2000 * pace),
        "replica.high.watermark.checkpoint.interval.ms": str(1500 * pace),
        "log.cleaner.threads": random.choice(["1", "2"]),
    }
