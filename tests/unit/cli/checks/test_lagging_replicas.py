from __future__ import annotations

import pytest

from braidlog.cli.checks.finding import PROBLEM, WARNING
from braidlog.cli.checks.lagging_replicas import check_lagging, check_min_isr
from braidlog.cli.watching.metrics_pages import MetricsPage
from braidlog.client.cluster_view import NO_EPOCH, PartitionView, TopicView
from support.findings import status

UP = {1: None, 2: None, 3: None}


def topics(leader: int = 1, isr: tuple[int, ...] = (1,), offline: tuple[int, ...] = ()) -> list[TopicView]:
    partition = PartitionView(0, leader, NO_EPOCH, (1, 2), isr, offline)
    return [TopicView("t", bytes(16), 0, False, (partition,))]


def leader_page(records: int = 500, seconds: float = 90.0, silent: float = 0.3) -> MetricsPage:
    labels = '{topic="t",partition="0",broker="2"}'
    return MetricsPage(
        f"braidlog_replica_behind_records{labels} {records}\n"
        f"braidlog_replica_behind_seconds{labels} {seconds}\n"
        f"braidlog_replica_silent_seconds{labels} {silent}\n",
        None,
    )


def follower_page(unreachable: float = 0.0, waited: float = 0.0, writing: float = 0.0) -> MetricsPage:
    labels = '{clientid="ReplicaFetcherThread-0-1",leader="1"}'
    return MetricsPage(
        f"braidlog_replica_fetcher_unreachable_seconds{labels} {unreachable}\n"
        f"braidlog_replica_fetcher_wait_seconds_total{labels} {waited}\n"
        f"braidlog_replica_fetcher_append_seconds_total{labels} {writing}\n",
        None,
    )


def why(*, first: MetricsPage | None, second: MetricsPage | None, leader: MetricsPage | None = None) -> str:
    """What is said of broker 2, after its partition."""
    leader = leader or leader_page()
    pages = [{1: leader, **({} if page is None else {2: page})} for page in (first, second)]
    (found,) = check_lagging(topics(), UP, *pages)
    assert status(found) == WARNING
    start = "broker 2 is behind with t-0 (500 records, for 90 s): "
    assert found.text.startswith(start)
    assert found.advice
    return found.text.removeprefix(start)


def test_nobody_lags() -> None:
    assert check_lagging(topics(isr=(1, 2)), UP, {}, {}) == []
    # Without a leader nobody can be behind it.
    assert check_lagging(topics(leader=-1), UP, {}, {}) == []


def test_a_broker_that_is_down() -> None:
    (found,) = check_lagging(topics(), {1: None}, {}, {})
    assert found.text == "broker 2 is behind with t-0: it is down"


def test_a_directory_that_has_failed() -> None:
    (found,) = check_lagging(topics(offline=(2,)), UP, {}, {})
    assert found.text == "broker 2 is behind with t-0: its data directory has failed"


def test_a_follower_that_does_not_reach_its_leader() -> None:
    page = follower_page(unreachable=40)
    assert why(first=page, second=page) == "it does not reach broker 1, its leader"


def test_a_follower_that_does_not_fetch() -> None:
    page = follower_page(waited=9)
    silent = leader_page(silent=88.0)
    assert why(first=page, second=page, leader=silent) == "it does not fetch from broker 1, its leader"
    nothing = MetricsPage("", None)
    assert why(first=nothing, second=nothing) == "it does not fetch from broker 1, its leader"


def test_a_slow_disk_and_a_slow_network() -> None:
    before = follower_page(waited=100.0, writing=50.0)
    disk = why(first=before, second=follower_page(waited=100.1, writing=50.9))
    assert disk.startswith("it is slow to write what it fetches (90% of its fetcher's time goes there): its disk")
    network = why(first=before, second=follower_page(waited=100.8, writing=50.2))
    assert network.startswith("it waits for broker 1 (80% of its fetcher's time goes there): the network")
    # One fetch under way all the time is neither counted as this nor that.
    assert why(first=before, second=before) == "its fetches from broker 1 do not end"


def test_a_follower_whose_page_is_not_known() -> None:
    assert why(first=None, second=None) == "why is not known, as its metrics page was not read"


@pytest.mark.parametrize(("min_isr", "refuses"), [(1, False), (2, True), (3, True)])
def test_partitions_that_refuse_acks_all(min_isr: int, refuses: bool) -> None:
    found = check_min_isr(topics(), {"t": min_isr})
    assert [status(each) for each in found] == [PROBLEM] * refuses
    assert not found or found[0].text.endswith("acks=all is refused: t-0")
    # More than there are replicas cannot be asked for.
    assert check_min_isr(topics(isr=(1, 2)), {"t": 3}) == []
