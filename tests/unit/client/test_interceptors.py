"""Interceptors see and change what passes, in their order, and what they raise stops nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from braidlog.client.consumer import interceptors as consumers
from braidlog.client.errors import SettingError
from braidlog.client.producer.delivery import ProducerRecord
from braidlog.client.producer.send_pipeline import ProducerInterceptors
from braidlog.client.settings import CONSUMER, PRODUCER, Settings

RECORD = ProducerRecord("t", "v", None, None, None, ())


class Stamp:
    """Appends its sign to all it sees; with `fails`, raises instead."""

    def __init__(self, sign: str = "?", fails: bool = False) -> None:
        self.sign = sign
        self.fails = fails
        self.seen: list[Any] = []

    def configure(self, settings: Settings) -> None:
        self.client_id = settings.text("client.id")

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self._look(record)
        return record._replace(value=record.value + self.sign)

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        self._look((metadata, error))

    def on_consume(self, records: list[str]) -> list[str]:
        self._look(records)
        return [*records, self.sign]

    def on_commit(self, offsets: Any) -> None:
        self._look(offsets)

    def close(self) -> None:
        self._look("closed")

    def _look(self, what: Any) -> None:
        self.seen.append(what)
        if self.fails:
            raise RuntimeError("not today")


class OnlyCommits:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_commit(self, offsets: Any) -> None:
        self.seen.append(offsets)


def producing(*given: object) -> ProducerInterceptors:
    chain = ProducerInterceptors.of(Settings.of(PRODUCER, {"client.id": "me", "interceptor.classes": given}))
    assert chain is not None
    return chain


def consuming(*given: object) -> consumers.ConsumerInterceptors:
    chain = consumers.interceptors_of(Settings.of(CONSUMER, {"interceptor.classes": given}))
    assert chain is not None
    return chain


def test_none_are_none() -> None:
    assert ProducerInterceptors.of(Settings.of(PRODUCER)) is None
    assert consumers.interceptors_of(Settings.of(CONSUMER)) is None


def test_each_sees_what_the_one_before_it_made(caplog: pytest.LogCaptureFixture) -> None:
    first, broken, last = Stamp("1"), Stamp("2", fails=True), Stamp("3")
    chain = producing(first, broken, last)
    with caplog.at_level(logging.WARNING):
        assert chain.on_send(RECORD) == RECORD._replace(value="v13")
    assert [stamp.seen[0].value for stamp in (first, broken, last)] == ["v", "v1", "v1"]
    assert "sending a record to topic t" in caplog.text
    assert "not today" in caplog.text
    assert first.client_id == "me"


def test_all_hear_of_the_end_of_a_record(caplog: pytest.LogCaptureFixture) -> None:
    broken, last = Stamp(fails=True), Stamp()
    chain = producing(broken, last)
    assert chain.want_acknowledgements
    error = ValueError()
    with caplog.at_level(logging.CRITICAL):
        chain.on_acknowledgement("metadata", None)
        chain.on_acknowledgement(None, error)
        chain.close()
    assert last.seen == [("metadata", None), (None, error), "closed"]


def test_consumed_records_and_commits_pass_by(caplog: pytest.LogCaptureFixture) -> None:
    first, broken, commits = Stamp("1"), Stamp("2", fails=True), OnlyCommits()
    chain = consuming(first, broken, commits, Stamp("4"))
    with caplog.at_level(logging.CRITICAL):
        assert chain.on_consume(["r"]) == ["r", "1", "4"]
        chain.on_commit({"p": 1})
        chain.close()
    assert commits.seen == [{"p": 1}]
    assert first.seen[1:] == [{"p": 1}, "closed"]


def test_a_method_that_is_missing_is_not_called() -> None:
    chain = producing(OnlyCommits())
    assert not chain.want_acknowledgements
    assert chain.on_send(RECORD) == RECORD
    chain.close()


def test_classes_and_their_names_will_do() -> None:
    for given in (Stamp, f"{__name__}.Stamp"):
        assert producing(given).on_send(RECORD).value == "v?"


@pytest.mark.parametrize("name", ["nowhere.Stamp", f"{__name__}.Nobody", "Stamp"])
def test_a_name_that_leads_nowhere_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match=r"interceptor\.classes names .* cannot be imported"):
        producing(name)
