"""Counts what clients produce, fetch and keep the broker busy with, and holds those that are over a quota.

    produce      the request's bytes count when it is answered; the records are written in any case
    fetch        the bytes that were found count; over the quota none are sent, and none count
    requests     the time that the loop spent in the handler, as a percentage of one thread's time
    mutations    partitions that are created and deleted (see `mutation_quotas`)

Whoever is over is answered at once, told for how long it is held, and its connection is not read from meanwhile
(KIP-219), whatever version it speaks. The longest of several throttles counts.

Each client that has a quota is counted by a sensor, which clients may share (a user's client ids). One that is not
used for an hour is forgotten, as in Kafka. Beyond a number of them those go first that count nothing any more: who
invents client ids takes neither memory nor the others' counts.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from braidlog.broker.quotas.quota_table import AppliedQuota, QuotaTable
from braidlog.cluster.image import ClusterImage, ImageDelta
from braidlog.cluster.quota_entities import (
    CLIENT_QUOTAS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    entity_of,
    quotas_in,
)
from braidlog.core.clock import Clock
from braidlog.core.quota import QuotaWindow, SampledRate, TokenBucket
from braidlog.net.channel import Channel
from braidlog.net.exchange import Exchange, RequestQuotas
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.message import Message

log = logging.getLogger("braidlog.quotas")

# A sensor that was not used for so long is forgotten.
_INACTIVE_MS: Final = 3_600_000
_SWEEP_EVERY_S: Final = 60.0
# Sensors, and clients whose quotas are looked up.
MOST_SENSORS: Final = 20_000
MOST_CLIENTS: Final = 20_000
# Sensors of each kind that metrics tell of.
MOST_SHOWN: Final = 500

# Requests between brokers, and logins, whose user is not known yet; a follower's fetch is told by its replica id.
_EXEMPT: Final = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    )
)
_PRODUCE: Final = int(ApiKey.PRODUCE)
_PERCENT: Final = 100.0
_INT_MAX: Final = 2**31 - 1

CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class QuotaSensor:
    """What those who share a quota have used of it."""

    __slots__ = ("bucket", "client_id", "key", "last_used_ms", "limit", "rate", "throttle_ms", "throttles", "user")

    def __init__(self, quota: AppliedQuota, window: QuotaWindow, now_ms: int) -> None:
        self.key = quota.key
        self.user = quota.user
        self.client_id = quota.client_id
        self.limit = quota.limit
        self.rate = SampledRate(window)
        # Of topic changes alone, which are let through by this; the rate is then for the metrics.
        self.bucket: TokenBucket | None = None
        if quota.key == CONTROLLER_MUTATION_RATE:
            self.bucket = TokenBucket(window, quota.limit, now_ms)
        self.last_used_ms = now_ms
        # How often it held somebody, and for how long in all.
        self.throttles = 0
        self.throttle_ms = 0

    def record(self, value: float, now_ms: int) -> int:
        """How long the client has to be held, in milliseconds, for this to be within the quota."""
        self.rate.record(value, now_ms)
        self.last_used_ms = now_ms
        return self.rate.throttle_ms(self.limit, now_ms)

    def unrecord(self, value: float, now_ms: int) -> None:
        self.rate.record(-value, now_ms)

    def held(self, throttle_ms: int) -> None:
        self.throttles += 1
        self.throttle_ms += throttle_ms

    def change_limit(self, limit: float, now_ms: int) -> None:
        self.limit = limit
        if self.bucket is not None:
            self.bucket.change_quota(limit, now_ms)


class ClientSensors(NamedTuple):
    """Those that count for one user and client id; None where it has no quota."""

    produce: QuotaSensor | None
    fetch: QuotaSensor | None
    request: QuotaSensor | None
    mutation: QuotaSensor | None


class _Throttle:
    """Of one channel: until when, in seconds of the clock."""

    __slots__ = ("timer", "until")

    def __init__(self, until: float, timer: asyncio.TimerHandle) -> None:
        self.until = until
        self.timer = timer


class ClientQuotas(RequestQuotas):
    """Listens to the image for what is set. `on_enabled` hears whether there are quotas of clients at all."""

    def __init__(
        self,
        clock: Clock,
        call_later: CallLater,
        window: QuotaWindow,
        mutation_window: QuotaWindow,
        on_enabled: Callable[[bool], None],
    ) -> None:
        self.table = QuotaTable()
        self._on_ip_quotas: Callable[[QuotaEntity, Mapping[str, float]], None] | None = None
        self._clock = clock
        self._call_later = call_later
        self._window = window
        self._mutation_window = mutation_window
        # Limits of one window: nobody is held for longer because of the time of its requests.
        self._most_request_throttle_ms = window.sample_ms
        self._on_enabled = on_enabled
        self._clients: dict[tuple[str, str], ClientSensors] = {}
        self._sensors: dict[tuple[str, str, str], QuotaSensor] = {}
        self._throttled: dict[Channel, _Throttle] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        # The time of requests that serve the cluster itself, for the metrics.
        self.exempt = SampledRate(window)

    # What is set

    def load(self, configs: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        """What is known when this begins to listen."""
        for path, overrides in configs:
            self._take(path, overrides)
        self._changed()

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        changed = False
        for path, overrides in delta.configs_changed.items():
            changed = self._take(path, overrides) or changed
        for path in delta.configs_deleted:
            changed = self._take(path, {}) or changed
        if changed:
            self._changed()

    def _take(self, path: str, overrides: Mapping[str, str]) -> bool:
        entity = entity_of(path)
        if entity is None:
            return False
        quotas = quotas_in(overrides)
        before = self.table.get(entity)
        if not self.table.set(entity, quotas):
            return False
        if CONTROLLER_MUTATION_RATE in before and CONTROLLER_MUTATION_RATE not in quotas:
            # Without a quota nothing is owed: the next one begins with a full bucket.
            self._sensors = {key: each for key, each in self._sensors.items() if each.bucket is None}
        if entity.ip is not None and self._on_ip_quotas is not None:
            self._on_ip_quotas(entity, quotas)
        return True

    def follow_ips(self, on_quotas: Callable[[QuotaEntity, Mapping[str, float]], None]) -> None:
        """Call with the quotas of each address, now and when they change."""
        self._on_ip_quotas = on_quotas
        for entity, quotas in self.table:
            if entity.ip is not None:
                on_quotas(entity, quotas)

    def _changed(self) -> None:
        """Who has which quota is looked up again; what was counted stays."""
        self._clients.clear()
        self._on_enabled(
            any(entity.ip is None and any(key in quotas for key in CLIENT_QUOTAS) for entity, quotas in self.table)
        )

    # What is used

    def charge(self, exchange: Exchange, response: Message) -> None:
        if exchange.charged:
            return
        now = self._clock.monotonic()
        if exchange.api_key in _EXEMPT:
            self._charge_exempt(exchange, now)
            return
        sensors = self._sensors_of(exchange)
        now_ms = int(now * 1000.0)
        throttle_ms, longest = exchange.throttle_ms, sensors.mutation
        if exchange.api_key == _PRODUCE and sensors.produce is not None:
            throttle_ms, longest = sensors.produce.record(exchange.size, now_ms), sensors.produce
        request_ms = self._charge_time(exchange, sensors.request, now)
        if request_ms > throttle_ms:
            throttle_ms, longest = request_ms, sensors.request
        exchange.charged = True
        if throttle_ms > 0:
            # A few responses have no such field.
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
            self._throttle(exchange, longest, throttle_ms, now)

    def charge_unanswered(self, exchange: Exchange) -> None:
        """A produce with acks=0: nothing tells of its bytes but a connection that is read from later."""
        if exchange.charged:
            return
        exchange.charged = True
        now = self._clock.monotonic()
        self._charge_exempt(exchange, now)
        sensor = self._sensors_of(exchange).produce
        if exchange.api_key == _PRODUCE and sensor is not None:
            throttle_ms = sensor.record(exchange.size, int(now * 1000.0))
            if throttle_ms > 0:
                self._throttle(exchange, sensor, throttle_ms, now)

    def charge_fetch(self, exchange: Exchange, size: int) -> int:
        now = self._clock.monotonic()
        now_ms = int(now * 1000.0)
        sensors = self._sensors_of(exchange)
        throttle_ms = self._charge_time(exchange, sensors.request, now)
        longest = sensors.request
        fetch = sensors.fetch
        if fetch is not None:
            fetch_ms = fetch.record(size, now_ms)
            if fetch_ms > throttle_ms:
                throttle_ms, longest = fetch_ms, fetch
            if throttle_ms > 0:
                # The answer will be empty.
                fetch.unrecord(size, now_ms)
        exchange.charged = True
        if throttle_ms > 0:
            self._throttle(exchange, longest, throttle_ms, now)
        return throttle_ms

    def charge_exempt(self, exchange: Exchange) -> None:
        exchange.charged = True
        self._charge_exempt(exchange, self._clock.monotonic())

    def most_fetch_bytes(self, exchange: Exchange) -> int:
        sensor = self._sensors_of(exchange).fetch
        if sensor is None:
            return _INT_MAX
        return int(max(0.0, min(sensor.limit * self._window.complete_ms / 1000.0, _INT_MAX)))

    def _charge_time(self, exchange: Exchange, sensor: QuotaSensor | None, now: float) -> int:
        if sensor is None:
            return 0
        throttle_ms = sensor.record(_percentage(exchange, now), int(now * 1000.0))
        return min(throttle_ms, self._most_request_throttle_ms)

    def _charge_exempt(self, exchange: Exchange, now: float) -> None:
        self.exempt.record(_percentage(exchange, now), int(now * 1000.0))

    # Sensors

    def mutation_sensor(self, exchange: Exchange) -> QuotaSensor | None:
        return self._sensors_of(exchange).mutation

    def now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000.0)

    @property
    def sensors(self) -> Collection[QuotaSensor]:
        return self._sensors.values()

    def last_used(self, key: str) -> list[QuotaSensor]:
        """Those of one kind of quota that were used last: no more than metrics can be shown for."""
        of_kind = (sensor for sensor in self._sensors.values() if sensor.key == key)
        return heapq.nlargest(MOST_SHOWN, of_kind, key=lambda sensor: sensor.last_used_ms)

    @property
    def throttled(self) -> int:
        """Connections that are held now."""
        return len(self._throttled)

    def _sensors_of(self, exchange: Exchange) -> ClientSensors:
        who = (exchange.channel.principal, exchange.client_id or "")
        found = self._clients.get(who)
        if found is None:
            if len(self._clients) >= MOST_CLIENTS:
                self._clients.clear()
            now_ms = self.now_ms()
            find = self.table.find
            found = self._clients[who] = ClientSensors(
                self._sensor(find(PRODUCER_BYTE_RATE, *who), now_ms),
                self._sensor(find(CONSUMER_BYTE_RATE, *who), now_ms),
                self._sensor(find(REQUEST_PERCENTAGE, *who), now_ms),
                self._sensor(find(CONTROLLER_MUTATION_RATE, *who), now_ms),
            )
        return found

    def _sensor(self, quota: AppliedQuota | None, now_ms: int) -> QuotaSensor | None:
        if quota is None:
            return None
        key = (quota.key, quota.user, quota.client_id)
        sensor = self._sensors.get(key)
        if sensor is None:
            if len(self._sensors) >= MOST_SENSORS:
                self._make_room(now_ms)
            window = self._mutation_window if quota.key == CONTROLLER_MUTATION_RATE else self._window
            sensor = self._sensors[key] = QuotaSensor(quota, window, now_ms)
            if self._sweeper is None:
                self._sweeper = self._call_later(_SWEEP_EVERY_S, self._sweep)
        elif sensor.limit != quota.limit:
            sensor.change_limit(quota.limit, now_ms)
        return sensor

    def _sweep(self) -> None:
        self._forget(self.now_ms() - _INACTIVE_MS)
        self._sweeper = self._call_later(_SWEEP_EVERY_S, self._sweep) if self._sensors else None

    def _make_room(self, now_ms: int) -> None:
        """Those whose windows are empty, or else the older half."""
        self._forget(now_ms - max(self._window.length_ms, self._mutation_window.length_ms))
        if len(self._sensors) >= MOST_SENSORS:
            used = sorted(sensor.last_used_ms for sensor in self._sensors.values())
            self._forget(used[len(used) // 2])

    def _forget(self, not_after_ms: int) -> None:
        kept = {key: sensor for key, sensor in self._sensors.items() if sensor.last_used_ms > not_after_ms}
        if len(kept) < len(self._sensors):
            self._sensors = kept
            self._clients.clear()

    # Holding

    def _throttle(self, exchange: Exchange, sensor: QuotaSensor | None, throttle_ms: int, now: float) -> None:
        if sensor is not None:
            sensor.held(throttle_ms)
        channel = exchange.channel
        if channel.closed:
            return
        if log.isEnabledFor(logging.DEBUG):
            key = sensor.key if sensor is not None else "no quota any more"
            message = "%s as %r at %s is held for %d ms: %s"
            log.debug(message, channel.principal, exchange.client_id, channel.peer_host, throttle_ms, key)
        until = now + throttle_ms / 1000.0
        held = self._throttled.get(channel)
        if held is None:
            timer = self._call_later(throttle_ms / 1000.0, lambda: self._due(channel))
            self._throttled[channel] = _Throttle(until, timer)
            channel.throttle()
        else:
            held.until = max(held.until, until)

    def _due(self, channel: Channel) -> None:
        held = self._throttled[channel]
        left = held.until - self._clock.monotonic()
        if left > 0.0:
            held.timer = self._call_later(left, lambda: self._due(channel))
            return
        del self._throttled[channel]
        channel.end_throttle()

    def channel_closed(self, channel: Channel) -> None:
        held = self._throttled.pop(channel, None)
        if held is not None:
            held.timer.cancel()

    def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for held in self._throttled.values():
            held.timer.cancel()
        self._throttled.clear()


def _percentage(exchange: Exchange, now: float) -> float:
    """Of one second of a thread: the time from taking the request up to when its handler let go of it."""
    worked = now if exchange.handled == 0.0 else exchange.handled
    return max(0.0, worked - exchange.started) * _PERCENT
