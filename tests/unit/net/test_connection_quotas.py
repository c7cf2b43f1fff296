"""Limits of connections and of their rate, against a clock that only the test moves."""

from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from braidlog.net.connection_quotas import UNTIL_ROOM, ConnectionQuotas, addresses_of


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


def test_host_names_are_looked_up_and_addresses_kept() -> None:
    assert addresses_of({"192.0.2.7": 3, "::1": 4}) == {"192.0.2.7": 3, "::1": 4}
    assert addresses_of({"localhost": 2}).get("127.0.0.1") == 2
    with pytest.raises(UserError, match="cannot find the host no-such-host"):
        addresses_of({"no-such-host.invalid": 1})
