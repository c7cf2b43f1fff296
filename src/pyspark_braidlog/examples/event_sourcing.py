"""Event sourcing: accounts are not stored, only what happened to them; their state is rebuilt from the events.

An account's events are in one partition (they have its name as key), so that their offsets are their order.
Rebuilding is a fold over them, in plain Python. Reading up to a moment (`endingTimestamp`) gives the state as it was
then. The result is published as a snapshot: a compacted topic, for those who want the balance and not the history.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_braidlog.examples.environment import Event, ExampleEnvironment, run_example

HAPPENING: Final = "account STRING, what STRING, owner STRING, cents BIGINT"
ACCOUNT: Final = "account STRING, owner STRING, balance_cents BIGINT, events BIGINT, is_open BOOLEAN"
_MONDAY: Final = datetime(2026, 3, 2, tzinfo=UTC)
_MINUTE: Final = timedelta(minutes=1)
_OWNERS: Final = ("Ada", "Alan", "Barbara", "Edsger", "Grace")


def happenings(count: int, seed: int = 5) -> Iterator[Event]:
    """One a minute: accounts are opened, used and sometimes closed; no withdrawal exceeds the balance."""
    chance = random.Random(seed)
    balances: dict[str, int] = {}
    opened = 0
    for number in range(count):
        if not balances or chance.random() < 0.08:
            account, opened = f"account-{opened}", opened + 1
            balances[account] = 0
            happening: dict[str, object] = {"what": "opened", "owner": chance.choice(_OWNERS)}
        else:
            account = chance.choice(sorted(balances))
            balance = balances[account]
            if balance == 0 and chance.random() < 0.3:
                del balances[account]
                happening = {"what": "closed"}
            elif balance > 0 and chance.random() < 0.5:
                cents = balance if chance.random() < 0.3 else chance.randint(1, balance)
                balances[account] -= cents
                happening = {"what": "withdrawn", "cents": cents}
            else:
                cents = chance.randint(1, 100_000)
                balances[account] += cents
                happening = {"what": "deposited", "cents": cents}
        yield Event(account, json.dumps({"account": account, **happening}), timestamp_ms=_ms(minute(number)))


def minute(number: int) -> datetime:
    """When that event happened."""
    return _MONDAY + number * _MINUTE


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def fold(account: str, happenings: Iterable[Mapping[str, Any]]) -> dict[str, object]:
    """The rules: what each event does to an account."""
    owner, balance_cents, events, is_open = None, 0, 0, False
    for happening in happenings:
        events += 1
        match happening["what"]:
            case "opened":
                owner, is_open = happening["owner"], True
            case "deposited":
                balance_cents += int(happening["cents"])
            case "withdrawn":
                balance_cents -= int(happening["cents"])
            case "closed":
                is_open = False
            case unknown:
                raise ValueError(f"{account} has an event {unknown!r}, for which there is no rule")
    return {"account": account, "owner": owner, "balance_cents": balance_cents, "events": events, "is_open": is_open}


def accounts(records: DataFrame) -> DataFrame:
    """Records of events in; one row an account out."""

    def rebuild(events: pa.Table) -> pa.Table:
        in_order = events.sort_by("offset").to_pylist()
        return pa.Table.from_pylist([fold(in_order[0]["account"], in_order)])

    return (
        records.select(F.from_json(F.col("value").cast("string"), HAPPENING).alias("happening"), "offset")
        .select("happening.*", "offset")
        .groupBy("account")
        .applyInArrow(rebuild, ACCOUNT)
    )


def run(env: ExampleEnvironment) -> None:
    # Events are what there is of the accounts: they are never deleted.
    events_topic = env.create_topic("events", partitions=3, config={"retention.ms": "-1"})
    snapshot_topic = env.create_topic("accounts", config={"cleanup.policy": "compact"})
    env.send(events_topic, happenings(env.events))

    history = (
        env.spark.read.format("braidlog")
        .option("kafka.bootstrap.servers", env.bootstrap)
        .option("subscribe", events_topic)
    )
    now = accounts(history.load())
    snapshot = now.select(F.col("account").alias("key"), F.to_json(F.struct("*")).alias("value"))
    (
        snapshot.write.format("braidlog")
        .option("kafka.bootstrap.servers", env.bootstrap)
        .option("topic", snapshot_topic)
        .mode("append")
        .save()
    )
    moment = minute(env.events // 2)
    then = accounts(history.option("endingTimestamp", str(_ms(moment))).load())

    richest_first = F.desc("balance_cents"), F.col("account")
    env.show(f"Accounts as they were at {moment:%A, %H:%M}:", then.orderBy(*richest_first), rows=8)
    published = env.written(snapshot_topic).select(F.from_json("value", ACCOUNT).alias("row")).select("row.*")
    env.show("The same now, from the snapshot that was published:", published.orderBy(*richest_first), rows=8)
    env.say("The events stay where they are:")
    env.run_command("topics", "describe", events_topic)


if __name__ == "__main__":
    run_example(run, __doc__)
