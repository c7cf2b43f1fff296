from __future__ import annotations

import pytest

from braidlog.cli.checks.cluster_brokers import (
    check_clocks,
    check_ensemble,
    check_racks,
    check_reach,
    check_unread,
    duration,
)
from braidlog.cli.checks.finding import OK, PROBLEM, WARNING
from braidlog.cli.watching.metrics_pages import MetricsPage
from braidlog.client.admin.cluster_description import BrokerDescription
from braidlog.client.cluster_view import NO_EPOCH, PartitionView, TopicView
from support.findings import status


def brokers(**racks: str | None) -> dict[int, BrokerDescription]:
    return {int(each[1:]): BrokerDescription(int(each[1:]), "h", 9092, rack) for each, rack in racks.items()}


def topic(name: str, *replicas: tuple[int, ...]) -> TopicView:
    views = (PartitionView(index, each[0], NO_EPOCH, each, each, ()) for index, each in enumerate(replicas))
    return TopicView(name, bytes(16), 0, False, tuple(views))


def page(*lines: str, clock: float = 0.0, took: float = 0.0) -> MetricsPage:
    return MetricsPage(
        "\n".join([*lines, f"braidlog_time_seconds {1000 + clock}"]), None, 1000 - took / 2, 1000 + took / 2
    )


def test_brokers_that_do_not_reach_each_other() -> None:
    fetcher = 'braidlog_replica_fetcher_unreachable_seconds{clientid="ReplicaFetcherThread-0-2",leader="2"}'
    up = brokers(b1=None, b2=None, b3=None)
    (sound,) = check_reach({1: page(f"{fetcher} 0"), 2: page()}, up)
    assert (status(sound), sound.text) == (OK, "2 brokers reach those that they follow, and the controller all")
    (found,) = check_reach({1: page(f"{fetcher} 75.5"), 2: page()}, up)
    assert (status(found), found.text) == (PROBLEM, "broker 1 has not reached broker 2 for 76 s, which is up")
    assert "inter.broker.listener.name" in found.advice
    # A moment is nothing, and one that is down is reported elsewhere.
    assert check_reach({1: page(f"{fetcher} 1.5")}, up) == []
    assert check_reach({1: page(f"{fetcher} 75.5")}, brokers(b1=None, b3=None)) == []
    (told,) = check_reach({1: page('braidlog_controller_unreachable_seconds{broker_id="3"} 9')}, up)
    assert told.text == "the controller, broker 1, has not reached broker 3 for 9 s, which is up"


def test_clocks() -> None:
    assert check_clocks({1: page()}) == []
    (sound,) = check_clocks({1: page(clock=0.0), 2: page(clock=-0.25)})
    assert (status(sound), sound.text) == (OK, "those of 2 brokers agree to 0.250 s")
    (apart,) = check_clocks({1: page(), 2: page(clock=-4.0), 3: page(clock=2.0)})
    assert status(apart) == WARNING
    assert "that of broker 3 is 6.0 s ahead of that of broker 2" in apart.text
    (far,) = check_clocks({1: page(), 2: page(clock=300.0)})
    assert status(far) == PROBLEM
    # A page that took long to come says less of the time.
    (unsure,) = check_clocks({1: page(), 2: page(clock=4.0, took=10.0)})
    assert status(unsure) == OK


@pytest.mark.parametrize(
    ("racks", "statuses", "text"),
    [
        ({"b1": None, "b2": None}, [], ""),
        ({"b1": "a", "b2": "b"}, [OK], "2 brokers in 2, evenly"),
        ({"b1": "a", "b2": None}, [WARNING], "without one, while others have: 2"),
        ({"b1": "a", "b2": "b", "b3": "b"}, [WARNING], "uneven: a 1, b 2 brokers"),
    ],
)
def test_racks(racks: dict[str, str | None], statuses: list[str], text: str) -> None:
    found = check_racks(brokers(**racks).values(), [])
    assert [status(each) for each in found] == statuses
    assert not found or text in found[0].text


def test_replicas_that_share_a_rack() -> None:
    spread = brokers(b1="a", b2="b", b3="a", b4="b")
    (found,) = check_racks(spread.values(), [topic("t", (1, 2), (1, 3), (4,), (1, 9))])
    assert (status(found), found.text) == (WARNING, "all replicas are in one rack, and fail with it: t-1")


@pytest.mark.parametrize(
    ("connects", "statuses", "text"),
    [
        ({1: None, 2: ""}, [], ""),
        ({1: "zk:2181/kafka", 2: "zk:2181/kafka"}, [WARNING], "names one server (zk:2181)"),
        ({1: "a:1,b:2,c:3/kafka"}, [OK], "names 3 servers"),
        ({1: "a:1,b:2"}, [WARNING], "as many may fail as of 1"),
        ({1: "a:1,b:2,c:3", 2: "d:1,e:2,f:3"}, [OK, OK, WARNING], "names 3 servers"),
    ],
)
def test_the_ensemble(connects: dict[int, str | None], statuses: list[str], text: str) -> None:
    found = check_ensemble(connects)
    assert [status(each) for each in found] == statuses
    assert not found or text in found[0].text


def test_pages_that_were_not_read() -> None:
    (found,) = check_unread({2: "it has none"})
    assert status(found) == WARNING
    assert "the metrics page of broker 2 was not read (it has none)" in found.text
    assert "--metrics" in found.advice


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (600, "10 min"), (10_800, "3 h"), (200_000, "2 days")])
def test_durations_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text
