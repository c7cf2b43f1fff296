"""An Admin whose connections are cut, whose answers are lost, and whose broker says nothing any more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.client.admin import Admin, NewTopic, OffsetSpec
from braidlog.client.errors import NoConnection
from braidlog.core.protocol_errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition
from support.broker import start_braidlog
from support.cutting_proxy import CuttingProxy

QUICK = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50}


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[CuttingProxy]:
    with CuttingProxy() as between, start_braidlog(tmp_path / "data", between.settings(), port=between.broker_port):
        yield between


def test_a_call_survives_a_connection_that_is_cut_between_and_within_requests(proxy: CuttingProxy) -> None:
    with Admin(bootstrap_servers=proxy.bootstrap, **QUICK) as admin:
        admin.create_topics([NewTopic("orders", partitions=2)]).raise_for_errors()
        proxy.cut()
        assert [each.name for each in admin.list_topics()] == ["orders"]
        for after in range(0, 60, 7):
            proxy.cut_in_request(after)
            first = TopicPartition("orders", 0)
            assert admin.list_offsets({first: OffsetSpec.LATEST})[first].offset == 0
            assert admin.alter_group_offsets("g", {first: after}) == {first: None}
            assert admin.list_group_offsets(["g"])["g"][first].offset == after
        assert proxy.cuts >= 10


def test_what_was_done_though_nobody_heard_of_it_is_found_done(proxy: CuttingProxy) -> None:
    with Admin(bootstrap_servers=proxy.bootstrap, **QUICK) as admin:
        # The controller is known by then, so that what is lost is the answer to the request itself.
        admin.create_topics(["first"]).raise_for_errors()
        proxy.lose_answers(True)
        with pytest.raises(NoConnection):
            # Long enough for a busy machine to pass the request on.
            admin.within(5.0).create_topics(["orders"])
        proxy.lose_answers(False)
        again = admin.create_topics(["orders"])
        assert isinstance(again.errors["orders"], TopicAlreadyExistsError)
        assert admin.delete_topics(["orders"]) == {"orders": None}
        assert isinstance(admin.delete_topics(["orders"]).errors["orders"], UnknownTopicOrPartitionError)


def test_a_broker_that_falls_silent_costs_no_more_than_the_deadline(proxy: CuttingProxy) -> None:
    with Admin(bootstrap_servers=proxy.bootstrap, socket_connection_setup_timeout=1.0, **QUICK) as admin:
        assert admin.list_topics() == []
        proxy.lose_answers(True)
        before = time.monotonic()
        with pytest.raises(NoConnection, match=r"request\.timeout\.ms|did not answer"):
            admin.within(0.5).describe_cluster()
        # A request has 30 s by default, a call 60 s.
        assert time.monotonic() - before < 25.0
        proxy.lose_answers(False)
        assert len(admin.describe_cluster().brokers) == 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_cuts_at_random_are_followed_by_what_was_asked_for(proxy: CuttingProxy, seed: int) -> None:
    with Admin(bootstrap_servers=proxy.bootstrap, request_timeout=5.0, **QUICK) as admin:
        end = proxy.misbehave(seed)
        try:
            for number in range(15):
                name = f"t-{number}"
                made = admin.create_topics([NewTopic(name, partitions=2)])
                assert not made.errors or isinstance(made.errors[name], TopicAlreadyExistsError)
                assert len(admin.describe_topics([name])[name].partitions) == 2
                gone = admin.delete_topics([name])
                assert not gone.errors or isinstance(gone.errors[name], UnknownTopicOrPartitionError)
        finally:
            end()
        assert admin.list_topics() == []
