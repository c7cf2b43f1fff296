"""Interceptors see and change what passes, in their order, and what they raise stops nothing."""

from __future__ import annotations

import logging

import pytest

from braidlog.client.consumer import interceptors as consumers
from braidlog.client.errors import SettingError
from braidlog.client.producer.delivery import ProducerRecord
from braidlog.client.producer.send_pipeline import ProducerInterceptors
from braidlog.client.settings import CONSUMER, PRODUCER, Settings
from support.noting_interceptors import OnlyCommits, Stamp

RECORD = ProducerRecord("t", "v", None, None, None, ())


def producing(*given: object) -> ProducerInterceptors:
    chain = ProducerInterceptors.of(Settings.of(PRODUCER, {"client.id": "me", "interceptor.classes": given}))
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
