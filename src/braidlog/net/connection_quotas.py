"""How many connections there may be and how fast they may come (KIP-402, KIP-612).

    max.connections                 in all, or on one listener     over it, accepting waits for another to leave
    max.connection.creation.rate    in all, or on one listener     over it, accepting is delayed
    max.connections.per.ip          from one address               over it, a connection is closed at once
    connection_creation_rate        from one address, or from      over it, a connection is closed after a delay,
                                    each (a quota of ips)          and nothing that comes with it is read

Where there are several listeners, the one between brokers is protected: limits of the whole broker do not hold it
up, and its connections push out those of others that were quiet for longest.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

from braidlog.config.log_settings import MAX_INT
from braidlog.core.errors import UserError
from braidlog.core.quota import DEFAULT_WINDOW, QuotaWindow, SampledRate

# Waiting for a connection to close, not for time to pass.
UNTIL_ROOM: Final = float("inf")

# Addresses whose rate is measured; beyond it those that sent nothing within the window are forgotten, or all.
_MOST_MEASURED: Final = 10_000


class CreationRate:
    """A token bucket that holds the connections of one second.

    A rate of 0 lets one in every second: Kafka delays an accept by one quota window at most, too, and without it no one
    could connect to raise the rate again.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._per_second = MAX_INT
        self._tokens = float(MAX_INT)
        self._at = clock()

    def set(self, per_second: int) -> None:
        self._refill()
        self._per_second = max(per_second, 1)
        self._tokens = min(self._tokens, self._per_second)

    def delay_s(self) -> float:
        """How long until the next connection may be taken; 0 for now."""
        self._refill()
        return max(0.0, (1 - self._tokens) / self._per_second)

    def spend(self) -> None:
        self._tokens = max(0.0, self._tokens - 1)

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._tokens + (now - self._at) * self._per_second, self._per_second)
        self._at = now


class _ListenerQuota:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.protected = False
        self.most = MAX_INT
        self.open = 0
        self.rate = CreationRate(clock)


class _MeasuredHost:
    """How fast connections come from one address."""

    __slots__ = ("last_ms", "rate")

    def __init__(self, window: QuotaWindow) -> None:
        self.rate = SampledRate(window)
        self.last_ms = 0


class ConnectionQuotas:
    """Shared by all listeners, which ask it before each accept; its limits may change at any time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        """`window` is what the rates of addresses are measured over."""
        self._clock = clock
        self._window = window
        # Connections per second that may come from an address; None where there is no quota.
        self._host_rates: dict[str, float] = {}
        self._default_host_rate: float | None = None
        self._measured: dict[str, _MeasuredHost] = {}
        # Closed after a delay because they came too fast from their address.
        self.throttled = 0
        self.most = MAX_INT
        self.most_per_host = MAX_INT
        # Addresses as text -> connections.
        self.overrides: dict[str, int] = {}
        self.open = 0
        # Closed at once because their address had too many.
        self.refused = 0
        self._rate = CreationRate(clock)
        self._by_host: dict[str, int] = {}
        self._listeners: dict[str, _ListenerQuota] = {}
        # Called when one that waits may be let in now.
        self.on_room: list[Callable[[], None]] = []
        # Called when there are more than the broker may have, so that the listeners close some.
        self.on_excess: list[Callable[[], None]] = []

    def add_listener(self, name: str, *, protected: bool = False) -> None:
        """Connections of an earlier one of that name, which are closing, go on counting."""
        if name not in self._listeners:
            self._listeners[name] = _ListenerQuota(self._clock)
        self._listeners[name].protected = protected

    @property
    def listeners(self) -> list[str]:
        return list(self._listeners)

    # --- limits

    def set_limits(self, most: int = MAX_INT, per_second: int = MAX_INT) -> None:
        self.most = most
        self._rate.set(per_second)
        self._limits_changed()

    def set_listener_limits(self, name: str, most: int = MAX_INT, per_second: int = MAX_INT) -> None:
        listener = self._listeners[name]
        listener.most = most
        listener.rate.set(per_second)
        self._limits_changed()

    def set_host_limits(self, most: int = MAX_INT, overrides: Mapping[str, int] | None = None) -> None:
        self.most_per_host = most
        self.overrides = dict(overrides or {})

    def set_host_rate(self, host: str | None, per_second: float | None) -> None:
        """The quota of an address, or with None that of each address without one; None takes it away."""
        if host is None:
            self._default_host_rate = per_second
        elif per_second is None:
            self._host_rates.pop(host, None)
        else:
            self._host_rates[host] = per_second
        if self._default_host_rate is None:
            self._measured = {each: found for each, found in self._measured.items() if each in self._host_rates}

    def _limits_changed(self) -> None:
        self._tell_excess()
        for tell in self.on_room:
            tell()

    # --- before an accept

    def delay_s(self, name: str) -> float:
        """How long the listener has to wait before it accepts the next; 0 for now, UNTIL_ROOM for no known time."""
        listener = self._listeners[name]
        if listener.open >= listener.most or (not listener.protected and self.open >= self.most):
            return UNTIL_ROOM
        delay = listener.rate.delay_s()
        return delay if listener.protected else max(delay, self._rate.delay_s())

    # --- accepted

    def host_delay_s(self, name: str, host: str) -> float:
        """Count a connection that was accepted against the rate of its address: 0, or how long until it is closed.

        One that is closed does not count, so that whoever tries again and again is let in as often as it may be.
        """
        quota = self._host_rates.get(host, self._default_host_rate)
        if quota is None:
            return 0.0
        now_ms = int(self._clock() * 1000.0)
        measured = self._measured.get(host)
        if measured is None:
            if len(self._measured) >= _MOST_MEASURED:
                self._forget_hosts(now_ms)
            measured = self._measured[host] = _MeasuredHost(self._window)
        measured.last_ms = now_ms
        measured.rate.record(1.0, now_ms)
        throttle_ms = min(measured.rate.throttle_ms(quota, now_ms), self._window.sample_ms)
        if throttle_ms <= 0:
            return 0.0
        measured.rate.record(-1.0, now_ms)
        # It was accepted all the same.
        self._listeners[name].rate.spend()
        self._rate.spend()
        self.throttled += 1
        return throttle_ms / 1000.0

    def _forget_hosts(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._window.length_ms
        self._measured = {host: found for host, found in self._measured.items() if found.last_ms > oldest_ms}
        if len(self._measured) >= _MOST_MEASURED:
            self._measured = {}

    def admit(self, name: str, host: str) -> bool:
        """Count a connection that was accepted; False where it is one too many of its address and has to go."""
        listener = self._listeners[name]
        listener.rate.spend()
        self._rate.spend()
        if self._by_host.get(host, 0) >= self.overrides.get(host, self.most_per_host):
            self.refused += 1
            return False
        listener.open += 1
        self.open += 1
        self._by_host[host] = self._by_host.get(host, 0) + 1
        self._tell_excess()
        return True

    def release(self, name: str, host: str) -> None:
        self._listeners[name].open -= 1
        self.open -= 1
        left = self._by_host[host] - 1
        if left:
            self._by_host[host] = left
        else:
            del self._by_host[host]
        for tell in self.on_room:
            tell()

    def is_exceeded(self, name: str) -> bool:
        """Whether this listener has to close connections so that the broker has no more than it may."""
        return self.open > self.most and not self._listeners[name].protected

    def _tell_excess(self) -> None:
        if self.open > self.most:
            for tell in self.on_excess:
                tell()


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def addresses_of(counts: Mapping[str, int]) -> dict[str, int]:
    """max.connections.per.ip.overrides by address: connections are known by those, people also write names. Blocks."""
    by_address: dict[str, int] = {}
    for host, count in counts.items():
        try:
            by_address.update(dict.fromkeys(host_addresses(host), count))
        except OSError as problem:
            raise UserError(f"max.connections.per.ip.overrides: cannot find the host {host}: {problem}") from problem
    return by_address


def host_addresses(host: str) -> list[str]:
    """Raises OSError for a host that nobody knows. Blocks."""
    return [str(address[0]) for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
