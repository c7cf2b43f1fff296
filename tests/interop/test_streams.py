"""Kafka Streams 3.9: a word count with a repartition topic and a changelog, killed and started again."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from support import confluent
from support.broker import Broker
from support.eventually import eventually
from support.groups import LastingBroker
from support.word_count import AT_LEAST_ONCE, COUNTS_WITHIN_S, EXACTLY_ONCE, WordCountApp

pytestmark = [pytest.mark.peer]


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_word_count(quick_broker: Broker, topic: str, guarantee: str, tmp_path: Path) -> None:
    app = WordCountApp(quick_broker.bootstrap, topic, guarantee, tmp_path)
    app.write(50)
    with app.start() as first:
        app.wait(first)
        app.write(30)
        app.wait(first)
        eventually(lambda: repartition_start(app) > 0)  # what was consumed of it is deleted by the application
        first.terminate()
    app.write(20)
    with app.start() as second:
        app.wait(second)
        assert "state ERROR" not in second.lines
    created = confluent.admin(app.bootstrap).list_topics(timeout=30).topics
    assert {f"{topic}-words-repartition", f"{topic}-counts-changelog"} <= set(created)


def test_killed_while_counting_exactly_once(quick_broker: Broker, topic: str, tmp_path: Path) -> None:
    """Every word is counted once, whichever moment the application was killed at, also with two instances."""
    app = WordCountApp(quick_broker.bootstrap, topic, EXACTLY_ONCE, tmp_path)
    for lines in (200, 300):
        app.write(lines)
        before = sum(app.counts().values())
        with app.start() as killed:
            eventually(lambda: sum(app.counts().values()) > before, COUNTS_WITHIN_S)  # noqa: B023
            app.write(lines)
            killed.kill()
    with app.start() as first, app.start() as second:
        app.write(100)
        app.wait(first)
        second.kill()
        app.write(100)
        app.wait(first)
    app.check_counted_once()


def test_broker_killed_under_an_exactly_once_count(target_kind: str, topic: str, tmp_path: Path) -> None:
    """The application lives on through the broker's crashes, whatever transaction they cut in two."""
    broker = LastingBroker(target_kind, tmp_path / "data")
    with ExitStack() as apps:
        with broker.life() as running:
            app = WordCountApp(broker.bootstrap, topic, EXACTLY_ONCE, tmp_path)
            app.write(300)
            counting = apps.enter_context(app.start())
            eventually(lambda: bool(app.counts()), COUNTS_WITHIN_S)
            app.write(300)
            running.kill()
        with broker.life() as running:
            before = sum(app.counts().values())
            app.write(300)
            eventually(lambda: sum(app.counts().values()) > before, COUNTS_WITHIN_S)
            running.kill()
        with broker.life():
            app.wait(counting)
            app.check_counted_once()


def repartition_start(app: WordCountApp) -> int:
    name = f"{app.name}-words-repartition"
    with confluent.assigned(app.bootstrap, name) as consumer:
        offsets = [consumer.get_watermark_offsets(TopicPartition(name, n), timeout=30) for n in (0, 1)]
    return max(low for low, _ in offsets)
