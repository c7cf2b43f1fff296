"""Limits of connections and of their rate, against a clock that only the test moves."""

from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from braidlog.net import connection_quotas
from braidlog.net.connection_quotas import UNTIL_ROOM, ConnectionQuotas, addresses_of, is_address


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def quotas(time: Time) -> ConnectionQuotas:
    quotas = ConnectionQuotas(time)
    quotas.add_listener("A")
    quotas.add_listener("B")
    return quotas


def accept(quotas: ConnectionQuotas, name: str, host: str = "10.0.0.9") -> bool:
    return not quotas.delay_s(name) and quotas.admit(name, host)


def test_overrides_win_over_the_share_of_every_host(quotas: ConnectionQuotas) -> None:
    quotas.set_host_limits(1, {"10.0.0.1": 2, "10.0.0.2": 0})
    assert [accept(quotas, "A", "10.0.0.1") for _ in range(3)] == [True, True, False]
    assert not accept(quotas, "A", "10.0.0.2")
    assert accept(quotas, "A", "10.0.0.3")
    assert not accept(quotas, "B", "10.0.0.3")
    quotas.release("A", "10.0.0.3")
    assert accept(quotas, "B", "10.0.0.3")


def test_the_total_binds_all_listeners(quotas: ConnectionQuotas) -> None:
    quotas.set_limits(most=2)
    assert accept(quotas, "A")
    assert accept(quotas, "B")
    assert quotas.delay_s("A") == quotas.delay_s("B") == UNTIL_ROOM
    quotas.release("A", "10.0.0.9")
    assert quotas.delay_s("B") == 0


def test_a_listeners_own_limit_binds_it_alone(quotas: ConnectionQuotas) -> None:
    quotas.set_listener_limits("A", most=1)
    assert accept(quotas, "A")
    assert quotas.delay_s("A") == UNTIL_ROOM
    assert quotas.delay_s("B") == 0


def test_whoever_waits_is_told_when_somebody_leaves(quotas: ConnectionQuotas) -> None:
    reported: list[float] = []
    quotas.set_limits(most=1)
    quotas.on_room.append(lambda: reported.append(quotas.delay_s("B")))
    assert accept(quotas, "A")
    assert reported == []
    quotas.release("A", "10.0.0.9")
    assert reported == [0]


def test_the_rate_allows_a_second_at_once_and_then_its_pace(quotas: ConnectionQuotas, time: Time) -> None:
    quotas.set_limits(per_second=4)
    assert [accept(quotas, "A") for _ in range(5)] == [True] * 4 + [False]
    assert quotas.delay_s("B") == pytest.approx(0.25), "the rate is the whole broker's"
    time.now += 0.25
    assert accept(quotas, "B")
    assert not accept(quotas, "A")


def test_a_listeners_own_rate_binds_it_alone(quotas: ConnectionQuotas) -> None:
    quotas.set_listener_limits("A", per_second=1)
    assert accept(quotas, "A")
    assert quotas.delay_s("A") == pytest.approx(1.0)
    assert quotas.delay_s("B") == 0


def test_a_rate_of_nothing_lets_one_in_every_second(quotas: ConnectionQuotas, time: Time) -> None:
    quotas.set_limits(per_second=0)
    assert accept(quotas, "A")
    assert quotas.delay_s("A") == pytest.approx(1.0)
    time.now += 1.0
    assert accept(quotas, "A")


def test_a_new_rate_counts_from_now_on(quotas: ConnectionQuotas, time: Time) -> None:
    quotas.set_limits(per_second=1)
    assert accept(quotas, "A")
    quotas.set_limits(per_second=1000)
    assert quotas.delay_s("A") == pytest.approx(0.001)
    time.now += 1.0
    assert all(accept(quotas, "A") for _ in range(1000))


def test_the_listener_between_brokers_is_not_held_up_by_the_brokers_limits(time: Time) -> None:
    quotas = ConnectionQuotas(time)
    quotas.add_listener("INTERNAL", protected=True)
    quotas.add_listener("A")
    quotas.set_limits(most=1, per_second=1)
    exceeded: list[tuple[bool, bool]] = []
    quotas.on_excess.append(lambda: exceeded.append((quotas.is_exceeded("INTERNAL"), quotas.is_exceeded("A"))))
    assert accept(quotas, "A")
    assert accept(quotas, "INTERNAL")
    assert exceeded == [(False, True)], "others have to make room"
    quotas.set_listener_limits("INTERNAL", most=1)
    assert quotas.delay_s("INTERNAL") == UNTIL_ROOM, "its own limit counts"


def test_the_rate_of_one_address(quotas: ConnectionQuotas, time: Time) -> None:
    quotas.set_host_rate("10.0.0.1", 2)
    # As many as come in the ten whole samples may come at once.
    assert [quotas.host_delay_s("A", "10.0.0.1") for _ in range(20)] == [0] * 20
    assert quotas.host_delay_s("A", "10.0.0.1") == pytest.approx(0.5)
    assert quotas.throttled == 1
    assert quotas.host_delay_s("A", "10.0.0.2") == 0
    # Those that are closed do not count.
    for _ in range(50):
        assert 0 < quotas.host_delay_s("A", "10.0.0.1") <= 1
    time.now += 11.0
    assert quotas.host_delay_s("B", "10.0.0.1") == 0


def test_the_rate_of_each_address_changes_at_run_time(quotas: ConnectionQuotas) -> None:
    quotas.set_host_rate(None, 0.1)
    quotas.set_host_rate("10.0.0.1", 1000)
    assert quotas.host_delay_s("A", "10.0.0.2") == quotas.host_delay_s("A", "10.0.0.3") == 0
    assert quotas.host_delay_s("A", "10.0.0.2") == 1.0, "no longer than a sample"
    assert [quotas.host_delay_s("A", "10.0.0.1") for _ in range(100)] == [0] * 100
    quotas.set_host_rate("10.0.0.1", None)
    assert quotas.host_delay_s("A", "10.0.0.1") > 0, "what it did counts under the default"
    quotas.set_host_rate(None, None)
    assert quotas.host_delay_s("A", "10.0.0.2") == 0
    quotas.set_host_rate(None, 0)
    assert quotas.host_delay_s("A", "10.0.0.4") == 1.0


def test_a_throttled_connection_takes_its_place_in_the_rate_of_all(quotas: ConnectionQuotas) -> None:
    quotas.set_host_rate("10.0.0.1", 0)
    quotas.set_limits(per_second=2)
    for _ in range(2):
        assert quotas.host_delay_s("A", "10.0.0.1") > 0
    assert quotas.delay_s("A") > 0


def test_addresses_that_are_measured_are_bounded(
    quotas: ConnectionQuotas, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_quotas, "_MOST_MEASURED", 10)
    quotas.set_host_rate(None, 1)
    for number in range(100):
        quotas.host_delay_s("A", f"10.0.1.{number}")
        time.now += 0.5
    assert len(quotas._measured) <= 23


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.1", True), ("::1", True), ("localhost", False)])
def test_addresses_are_told_from_names(host: str, expected: bool) -> None:
    assert is_address(host) is expected


def test_host_names_are_looked_up_and_addresses_kept() -> None:
    assert addresses_of({"192.0.2.7": 3, "::1": 4}) == {"192.0.2.7": 3, "::1": 4}
    assert addresses_of({"localhost": 2}).get("127.0.0.1") == 2
    with pytest.raises(UserError, match="cannot find the host no-such-host"):
        addresses_of({"no-such-host.invalid": 1})
