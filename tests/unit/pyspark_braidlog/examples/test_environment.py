"""Arguments of examples, and what they do on a broker that is not theirs; no Spark is started."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from braidlog import Admin
from braidlog.core.errors import UserError
from braidlog.testing import Broker
from pyspark_braidlog.examples import environment as environment_module
from pyspark_braidlog.examples.environment import Event, ExampleEnvironment, TerminationSignals, run_example


class NoSpark:
    class streams:
        active = ()


def _environment(broker: Broker, scratch: Path) -> ExampleEnvironment:
    spark: Any = NoSpark()
    return ExampleEnvironment(broker.bootstrap_servers, spark, scratch, broker.unique_topic("env"), 10)


def test_topics_and_groups_are_taken_down(
    braidlog_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = _environment(braidlog_broker, tmp_path)
    topic = env.create_topic("in", 3)
    group = env.group("readers")
    assert env.send(topic, [Event("a", "1"), Event("b", None, (("h", b"x"),), 5)]) == 2
    with braidlog_broker.consumer(group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        records = []
        while len(records) < 2:
            records += consumer.poll(10)
        consumer.commit()
    assert {(record.key, record.value, record.headers) for record in records} == {
        (b"a", b"1", ()),
        (b"b", None, (("h", b"x"),)),
    }
    env.show_lag(group)
    shown = capsys.readouterr().out
    assert f"$ braidlog groups describe {group} --bootstrap {env.bootstrap}" in shown
    assert "LAG" in shown
    env.clean_up()
    with Admin(bootstrap_servers=env.bootstrap) as admin:
        assert topic not in {each.name for each in admin.list_topics()}
        assert group not in {each.group_id for each in admin.list_groups()}
    assert "was not deleted" not in capsys.readouterr().out


def test_topics_of_somebody_else_are_left_alone(braidlog_broker: Broker, tmp_path: Path) -> None:
    env = _environment(braidlog_broker, tmp_path)
    topic = braidlog_broker.create_topic(f"{env.prefix}-in")
    with pytest.raises(UserError, match=rf"{topic} is there already.*--prefix"):
        env.create_topic("in")
    env.clean_up()
    with Admin(bootstrap_servers=env.bootstrap) as admin:
        assert topic in {each.name for each in admin.list_topics()}


def test_a_command_that_fails_is_told(braidlog_broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"groups describe.*failed.*no-such-group"):
        _environment(braidlog_broker, tmp_path).show_lag("no-such-group")


@pytest.mark.parametrize("count", ["0", "-3", "many"])
def test_events_are_counted_from_one(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_example(lambda env: None, "About.", arguments=["--events", count])
    assert ended.value.code == 2
    assert "give 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_and_are_given_back(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    steps = []

    @contextmanager
    def open_environment(name: str, options: object, signals: TerminationSignals) -> Iterator[None]:
        # As Spark does when it starts.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signals.install()
        try:
            yield
        finally:
            signal.raise_signal(number)
            steps.append("cleaned up")

    def example(env: object) -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise RuntimeError("as a call to Java makes it look") from None

    before = signal.getsignal(number)
    monkeypatch.setattr(environment_module, "open_environment", open_environment)
    try:
        with pytest.raises(SystemExit) as ended:
            run_example(example, "About.", arguments=[])
    finally:
        logging.disable(logging.NOTSET)
    assert ended.value.code == 128 + number
    assert steps == ["cleaned up"]
    assert signal.getsignal(number) is before


def test_what_a_user_can_mend_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, options: object, signals: object) -> object:
        raise UserError("no Java was found: install one")

    monkeypatch.setattr(environment_module, "open_environment", refuse)
    with pytest.raises(SystemExit) as ended:
        run_example(lambda env: None, "About.", arguments=[])
    assert str(ended.value.code).endswith(": no Java was found: install one")
