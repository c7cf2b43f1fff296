"""The project of `braidlog pipeline init` as it is: it runs, and a second run takes up what is new and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from braidlog import TopicPartition
from braidlog.testing import Broker


def braidlog(*words: str, bootstrap: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "braidlog", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "BRAIDLOG_BOOTSTRAP": bootstrap},
    )


def rows_of(table: Path) -> list[dict[str, object]]:
    import pyarrow.parquet as pq

    return [row for file in sorted(table.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def committed_ids(broker: Broker, topic: str) -> list[int]:
    consumer = broker.consumer(**{"isolation.level": "read_committed"})
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning([place])
    end = consumer.end_offsets([place])[place]
    found: list[int] = []
    while consumer.position(place) < end:
        found += [int(json.loads(record.value)["id"][1:]) for record in consumer.poll(timeout=5.0)]
    # Tasks of a batch come in any order.
    return sorted(found)


@pytest.mark.timeout(900)
@pytest.mark.long
def test_a_new_project_runs_twice(tmp_path: Path) -> None:
    with Broker(kind="process") as broker:
        servers = broker.bootstrap_servers
        broker.create_topic("orders", partitions=2)
        broker.create_topic("orders-big")

        def put(numbers: range) -> None:
            producer = broker.producer()
            for number in numbers:
                order = {"id": f"o{number}", "customer": f"c{number % 3}", "amount": number * 20.0}
                producer.send("orders", value=json.dumps(order).encode(), partition=number % 2)
            producer.flush()

        def run() -> None:
            words = ("--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=1")
            ran = braidlog("pipeline", "run", str(home), *words, bootstrap=servers)
            assert (ran.returncode, ran.stderr) == (0, "")

        home = tmp_path / "shop"
        assert braidlog("pipeline", "init", str(home), bootstrap=servers).returncode == 0
        put(range(10))
        run()
        assert len(rows_of(home / "state/tables/orders")) == 10
        assert committed_ids(broker, "orders-big") == [5, 6, 7, 8, 9]

        put(range(10, 12))
        lag = braidlog("pipeline", "lag", str(home), "--group", "shop", "--output", "json", bootstrap=servers)
        behind = [(row["query"] == "shop", row["partition"], row["lag"]) for row in json.loads(lag.stdout)]
        # The checkpoint and the group say the same.
        assert sorted(behind) == [(False, 0, 1), (False, 1, 1), (True, 0, 1), (True, 1, 1)]

        run()
        read = [(row["partition"], row["offset"]) for row in rows_of(home / "state/tables/orders")]
        assert sorted(read) == [(number % 2, number // 2) for number in (*range(0, 12, 2), *range(1, 12, 2))]
        spent = {row["customer"]: row["amount"] for row in rows_of(home / "state/tables/orders_by_customer")}
        assert spent == {f"c{own}": sum(number * 20.0 for number in range(own, 12, 3)) for own in range(3)}
        assert committed_ids(broker, "orders-big") == [5, 6, 7, 8, 9, 10, 11]

        (home / "transformations" / "wrong.py").write_text(
            "from pyspark import pipelines as dp\n\n\n"
            "@dp.materialized_view\n"
            "def wrong():\n"
            "    return spark.read.table('orders').select('nothing')\n"
        )
        failed = braidlog("pipeline", "run", str(home), "--master", "local[2]", bootstrap=servers)
        assert failed.returncode == 1
        assert failed.stderr.count("\n") == 1
        assert failed.stderr.startswith("braidlog: flow spark_catalog.default.wrong: A column")
