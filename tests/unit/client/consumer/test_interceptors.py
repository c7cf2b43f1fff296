from __future__ import annotations

import logging

import pytest

from braidlog.client.consumer import interceptors as consumers
from braidlog.client.settings import CONSUMER, Settings
from support.noting_interceptors import OnlyCommits, Stamp


def consuming(*given: object) -> consumers.ConsumerInterceptors:
    chain = consumers.interceptors_of(Settings.of(CONSUMER, {"interceptor.classes": given}))
    assert chain is not None
    return chain


def test_consumed_records_and_commits_pass_by(caplog: pytest.LogCaptureFixture) -> None:
    first, broken, commits = Stamp("1"), Stamp("2", fails=True), OnlyCommits()
    chain = consuming(first, broken, commits, Stamp("4"))
    with caplog.at_level(logging.CRITICAL):
        assert chain.on_consume(["r"]) == ["r", "1", "4"]
        chain.on_commit({"p": 1})
        chain.close()
    assert commits.seen == [{"p": 1}]
    assert first.seen[1:] == [{"p": 1}, "closed"]
