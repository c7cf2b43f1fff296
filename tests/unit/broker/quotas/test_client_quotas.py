"""Who is held, for how long, and that idle clients are forgotten; on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from braidlog.broker.quotas import client_quotas
from braidlog.broker.quotas.client_quotas import ClientQuotas
from braidlog.cluster.image import ClusterImage, ImageDelta
from braidlog.core.clock import ManualClock
from braidlog.core.quota import DEFAULT_WINDOW
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Exchange, Part
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.fetch import FetchResponse
from braidlog.wire.generated.metadata import MetadataResponse
from braidlog.wire.generated.produce import ProduceResponse


class FakeChannel(Channel):
    """A channel of a user that sends nothing."""

    def __init__(self, principal: str = "ann") -> None:
        super().__init__(FrameHandler(), Round(self), MemoryBudget(1 << 20), "PLAINTEXT", "10.0.0.9")
        self.principal = principal

    def call_soon(self, callback: object) -> None:
        pass

    def send(self, parts: list[Part]) -> None:
        pass

    def resume(self) -> None:
        pass


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers: list[Timer] = []
        self.enabled: list[bool] = []
        call_later: Any = self._call_later
        self.quotas = ClientQuotas(self.clock, call_later, DEFAULT_WINDOW, DEFAULT_WINDOW, self.enabled.append)

    def _call_later(self, delay: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self.clock.monotonic() + delay, call)
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while due := [timer for timer in self.timers if timer.at <= end]:
            first = min(due, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.clock.advance(max(0.0, first.at - self.clock.monotonic()))
            if not first.cancelled:
                first.call()
        self.clock.advance(end - self.clock.monotonic())

    def set(self, path: str, **quotas: float) -> None:
        delta = ImageDelta(configs_changed={path: {key: str(value) for key, value in quotas.items()}})
        asyncio.run(self.quotas.image_changed(ClusterImage(), delta))

    def exchange(
        self, channel: Channel, api: ApiKey = ApiKey.PRODUCE, size: int = 0, client_id: str | None = "app"
    ) -> Exchange:
        return Exchange(channel, api, 9, 1, client_id, self.clock.monotonic(), None, self.quotas, size)

    def produce(self, channel: Channel, size: int, client_id: str | None = "app") -> int:
        response = ProduceResponse()
        self.quotas.charge(self.exchange(channel, size=size, client_id=client_id), response)
        return response.throttle_time_ms


@pytest.fixture
def world() -> World:
    return World()


def test_a_producer_over_its_quota_is_told_and_held(world: World) -> None:
    world.set("users/ann", producer_byte_rate=1_000_000)
    channel = FakeChannel()
    assert world.produce(channel, 8_000_000) == 0
    assert not channel.throttled
    assert world.produce(channel, 4_000_000) == 2_000
    assert channel.throttled
    world.advance(1.9)
    assert channel.throttled
    world.advance(0.2)
    assert not channel.throttled
    assert world.quotas.throttled == 0


def test_others_are_not_held(world: World) -> None:
    world.set("users/ann", producer_byte_rate=1)
    other = FakeChannel("bob")
    assert world.produce(other, 100_000_000) == 0
    assert not other.throttled


def test_the_client_ids_of_a_user_share_its_quota_and_others_do_not(world: World) -> None:
    world.set("users/ann", producer_byte_rate=1_000_000)
    world.set("clients/<default>", producer_byte_rate=1_000_000)
    assert world.produce(FakeChannel(), 6_000_000, "one") == 0
    assert world.produce(FakeChannel(), 6_000_000, "two") > 0
    assert world.produce(FakeChannel("bob"), 6_000_000, "one") == 0
    assert world.produce(FakeChannel("bob"), 6_000_000, "two") == 0
    assert world.produce(FakeChannel("eve"), 6_000_000, "two") > 0


def test_answers_while_held_make_it_longer(world: World) -> None:
    world.set("clients/app", producer_byte_rate=1_000_000)
    channel = FakeChannel()
    first = world.produce(channel, 11_000_000)
    second = world.produce(channel, 1_000_000)
    assert (first, second) == (1_000, 2_000)
    world.advance(1.5)
    assert channel.throttled
    world.advance(0.6)
    assert not channel.throttled


def test_a_throttled_fetch_does_not_count(world: World) -> None:
    world.set("clients/app", consumer_byte_rate=1_000_000)
    channel = FakeChannel()

    def fetch(size: int) -> int:
        exchange = world.exchange(channel, ApiKey.FETCH)
        throttle_ms = world.quotas.charge_fetch(exchange, size)
        response = FetchResponse(throttle_time_ms=throttle_ms)
        world.quotas.charge(exchange, response)
        assert response.throttle_time_ms == throttle_ms
        return throttle_ms

    assert fetch(6_000_000) == 0
    assert fetch(6_000_000) == 2_000
    assert channel.throttled
    assert fetch(4_000_000) == 0
    assert world.quotas.most_fetch_bytes(world.exchange(channel, ApiKey.FETCH)) == 10_000_000
    unlimited = world.exchange(FakeChannel(), ApiKey.FETCH, client_id="other")
    assert world.quotas.most_fetch_bytes(unlimited) == 2**31 - 1


def test_the_time_of_requests_is_limited_and_no_throttle_is_longer_than_a_sample(world: World) -> None:
    world.set("users/<default>", request_percentage=1.0)
    channel = FakeChannel()

    def ask(seconds: float) -> int:
        exchange = world.exchange(channel, ApiKey.METADATA)
        world.clock.advance(seconds)
        response = MetadataResponse()
        world.quotas.charge(exchange, response)
        return response.throttle_time_ms

    assert ask(0.05) == 0
    assert 0 < ask(0.06) < 1_000
    assert ask(5.0) == 1_000


def test_what_a_handler_left_to_later_is_not_its_time(world: World) -> None:
    world.set("users/<default>", request_percentage=0.1)
    exchange = world.exchange(FakeChannel(), ApiKey.METADATA)
    exchange.handled = exchange.started + 0.001
    world.clock.advance(30)
    response = MetadataResponse()
    world.quotas.charge(exchange, response)
    assert response.throttle_time_ms == 0


def test_requests_between_brokers_are_exempt_but_counted(world: World) -> None:
    world.set("users/<default>", request_percentage=0.01)
    channel = FakeChannel()
    exchange = world.exchange(channel, ApiKey.WRITE_TXN_MARKERS)
    world.clock.advance(1.0)
    world.quotas.charge(exchange, MetadataResponse())
    follower = world.exchange(channel, ApiKey.FETCH)
    world.clock.advance(1.0)
    world.quotas.charge_exempt(follower)
    world.quotas.charge(follower, FetchResponse())
    assert not channel.throttled
    now_ms = world.quotas.now_ms()
    assert world.quotas.exempt.per_second(now_ms) * world.quotas.exempt.window_ms(now_ms) / 1000 == pytest.approx(200)


def test_a_produce_without_an_answer_is_held_by_its_bytes_alone(world: World) -> None:
    world.set("clients/app", producer_byte_rate=1_000_000, request_percentage=0.001)
    channel = FakeChannel()
    exchange = world.exchange(channel, size=5_000_000)
    world.clock.advance(1.0)
    world.quotas.charge_unanswered(exchange)
    assert not channel.throttled
    world.quotas.charge_unanswered(world.exchange(channel, size=15_000_000))
    assert channel.throttled


def test_quotas_change_while_clients_are_counted(world: World) -> None:
    world.set("clients/app", producer_byte_rate=10_000_000)
    channel = FakeChannel()
    assert world.produce(channel, 20_000_000) == 0
    world.set("clients/app", producer_byte_rate=1_000_000)
    assert world.produce(channel, 0) == 10_000
    world.set("clients/app")
    assert world.produce(channel, 10**9) == 0
    assert world.enabled[-3:] == [True, True, False]


def test_addresses_are_told_to_whoever_accepts_connections(world: World) -> None:
    told: list[tuple[str, dict[str, float]]] = []
    world.set("ips/10.0.0.1", connection_creation_rate=5)
    assert world.enabled == [False]
    world.quotas.follow_ips(lambda entity, quotas: told.append((entity.path, dict(quotas))))
    world.set("ips/<default>", connection_creation_rate=7)
    world.set("ips/<default>")
    assert told == [
        ("ips/10.0.0.1", {"connection_creation_rate": 5.0}),
        ("ips/<default>", {"connection_creation_rate": 7.0}),
        ("ips/<default>", {}),
    ]


def test_a_channel_that_closes_is_forgotten(world: World) -> None:
    world.set("clients/app", producer_byte_rate=1)
    channel = FakeChannel()
    world.produce(channel, 1_000)
    assert world.quotas.throttled == 1
    world.quotas.channel_closed(channel)
    assert world.quotas.throttled == 0
    world.advance(3_600)
    assert channel.throttled
    channel.closed = True
    world.produce(channel, 1_000_000)
    assert world.quotas.throttled == 0


def test_sensors_are_forgotten_after_an_hour(world: World) -> None:
    world.set("clients/<default>", producer_byte_rate=1_000_000)
    world.produce(FakeChannel(), 1, "a")
    world.advance(3_000)
    world.produce(FakeChannel(), 1, "b")
    world.advance(700)
    assert [sensor.client_id for sensor in world.quotas.sensors] == ["b"]
    world.advance(3_600)
    assert list(world.quotas.sensors) == []
    # Nothing is left to look after.
    assert world.timers == []


def test_invented_client_ids_take_neither_memory_nor_the_counts_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_quotas, "MOST_SENSORS", 50)
    monkeypatch.setattr(client_quotas, "MOST_CLIENTS", 50)
    world.set("clients/<default>", producer_byte_rate=1_000_000)
    busy = FakeChannel()
    assert world.produce(busy, 9_000_000, "busy") == 0
    for number in range(1_000):
        world.advance(0.005)
        world.produce(FakeChannel(), 1, f"invented-{number}")
        if number % 10 == 0:
            world.produce(busy, 1, "busy")
    assert len(list(world.quotas.sensors)) <= 51
    assert world.produce(busy, 9_000_000, "busy") > 0


def test_metrics_tell_of_those_that_were_used_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "MOST_SHOWN", 3)
    world.set("clients/<default>", producer_byte_rate=1_000_000, consumer_byte_rate=1)
    for number in range(10):
        world.advance(0.1)
        world.produce(FakeChannel(), 2_000_000, str(number))
    world.produce(FakeChannel(), 20_000_000, "9")
    shown = world.quotas.last_used("producer_byte_rate")
    assert [sensor.client_id for sensor in shown] == ["9", "8", "7"]
    assert (shown[0].throttles, shown[0].throttle_ms) == (1, 12_000)
    assert len(world.quotas.sensors) == 20


def test_a_stop_lets_go_of_all(world: World) -> None:
    world.set("clients/app", producer_byte_rate=1)
    channel = FakeChannel()
    world.produce(channel, 1_000)
    world.quotas.stop()
    assert all(timer.cancelled for timer in world.timers)
