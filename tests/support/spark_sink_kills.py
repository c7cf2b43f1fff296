"""Lives of a copying Spark driver, each ended where a seed says, and what the copy has to be in the end."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

from braidlog import Admin, Producer, TopicPartition
from braidlog.client.admin.records import IsolationLevel, OffsetSpec
from braidlog.client.arrow.reading import RangeReader
from support.spark_sink_copier import Job, life
from support.spark_sink_faults import AFTER_COMMIT, BEFORE_COMMIT, BOTH, DRIVER, DRIVER_COMMIT, FIRST_ROWS, WORKER

PARTITIONS = 2
ROWS_A_LIFE = 240
ROWS_A_BATCH = 60
# Passages of each point that a life has at least, when nobody dies before.
PASSAGES = {FIRST_ROWS: 16, BEFORE_COMMIT: 8, AFTER_COMMIT: 8, DRIVER_COMMIT: 4}
# A driver's end, by point and victim.
ENDS = [
    (FIRST_ROWS, DRIVER),
    (FIRST_ROWS, BOTH),
    (BEFORE_COMMIT, DRIVER),
    (BEFORE_COMMIT, BOTH),
    (AFTER_COMMIT, DRIVER),
    (AFTER_COMMIT, BOTH),
    (DRIVER_COMMIT, DRIVER),
    (DRIVER_COMMIT, DRIVER),
]
TASK_POINTS = [FIRST_ROWS, BEFORE_COMMIT, AFTER_COMMIT]

Plan = dict[str, dict[str, str]]


class KilledCopyJob:
    """One query through many lives."""

    def __init__(self, bootstrap: str, place: Path, *, delivery: str = "exactly-once", shuffle: str = "") -> None:
        self._place = place
        self._written = 0
        self.lives = 0
        self.job = Job(
            bootstrap=bootstrap,
            source=f"{place.name}-source",
            sink=f"{place.name}-sink",
            checkpoint=str(place / "checkpoint"),
            plan=str(place / "plan.json"),
            delivery=delivery,
            rows_a_batch=ROWS_A_BATCH,
            shuffle=shuffle,
        )
        place.mkdir(parents=True, exist_ok=True)
        with Admin(bootstrap_servers=bootstrap) as admin:
            topics = [self.job.source, self.job.sink]
            from braidlog.client.admin.topics import NewTopic

            admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in topics]).raise_for_errors()

    def add_rows(self, count: int = ROWS_A_LIFE) -> None:
        with Producer(bootstrap_servers=self.job.bootstrap) as producer:
            for number in range(self._written, self._written + count):
                producer.send(self.job.source, f"row {number}", key=f"{number}", partition=number % PARTITIONS)
        self._written += count

    def live(self, plan: Plan) -> bool:
        """Whether everything was copied; else the driver died, as it should have."""
        Path(self.job.plan).write_text(json.dumps(plan))
        before = len(self.deaths())
        code, said = life(self.job)
        self.lives += 1
        if code == 0:
            return True
        assert len(self.deaths()) > before, f"the driver failed without having been killed:\n{said}"
        return False

    def finish(self) -> None:
        assert self.live({}), "the driver died in a life without deaths"

    def passages(self, point: str) -> int:
        path = self._place / f"{point}.passed"
        return path.stat().st_size if path.exists() else 0

    def plan(self, deaths: list[tuple[str, int, str]]) -> Plan:
        """(point, after so many passages in the life to come, victim)"""
        plan: Plan = {}
        for point, after, victim in deaths:
            plan.setdefault(point, {})[str(self.passages(point) + after)] = victim
        return plan

    def drawn_plan(self, draw: random.Random) -> Plan:
        """Some workers die, and the driver in the end."""
        deaths = []
        for _ in range(draw.randint(3, 7)):
            point = draw.choice(TASK_POINTS)
            deaths.append((point, draw.randrange(PASSAGES[point]), WORKER))
        point, victim = draw.choice(ENDS)
        deaths.append((point, draw.randrange(PASSAGES[point]), victim))
        return self.plan(deaths)

    def deaths(self) -> list[str]:
        path = self._place / "deaths"
        return path.read_text().splitlines() if path.exists() else []

    # What came of it

    def seen(self, isolation: IsolationLevel) -> Counter[str]:
        """Rows of the sink that a reader with this isolation sees, each with how often it is there."""
        job = self.job
        places = [TopicPartition(job.sink, each) for each in range(PARTITIONS)]
        with Admin(bootstrap_servers=job.bootstrap) as admin:
            ends = admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST), isolation=isolation)
        found: Counter[str] = Counter()
        with RangeReader(bootstrap_servers=job.bootstrap, isolation_level=isolation.name.lower()) as reader:
            for place in places:
                for batch in reader.read(job.sink, place.partition, 0, ends[place].offset, columns=["value"]):
                    found.update(each.decode() for each in batch.column("value").to_pylist())
        return found

    def copied(self) -> Counter[str]:
        """Committed rows, when no transaction is open."""
        job = self.job
        places = [TopicPartition(job.sink, each) for each in range(PARTITIONS)]
        with Admin(bootstrap_servers=job.bootstrap) as admin:
            ask = dict.fromkeys(places, OffsetSpec.LATEST)
            stable = admin.list_offsets(ask, isolation=IsolationLevel.READ_COMMITTED)
            last = admin.list_offsets(ask)
            for place in places:
                assert stable[place].offset == last[place].offset, f"a transaction is open in {place}"
        return self.seen(IsolationLevel.READ_COMMITTED)

    def check_exactly_once(self) -> None:
        found = self.copied()
        expected = Counter(f"row {number}" for number in range(self._written))
        doubled = {row: times for row, times in found.items() if times > 1}
        assert not doubled, f"{len(doubled)} rows more than once: {sorted(doubled)[:10]}"
        missing = sorted((expected - found).elements())
        assert not missing, f"{len(missing)} rows missing: {missing[:10]}"
        assert found == expected
