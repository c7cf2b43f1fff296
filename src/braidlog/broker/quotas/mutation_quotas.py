"""How many partitions a client may have created and deleted (KIP-599).

A request is let through while there are tokens left, and may take more than there are: what comes after it waits. From
the versions on whose clients know the error, each topic that comes without tokens is refused with
THROTTLING_QUOTA_EXCEEDED; older ones have all they ask for and are held afterwards. Topics that Metadata creates
on first use take from the tokens, too: their client is neither refused nor held, and what it asks for next has to wait.
"""

from __future__ import annotations

from typing import Final

from braidlog.broker.quotas.client_quotas import ClientQuotas, QuotaSensor
from braidlog.core.protocol_errors import ProtocolError, ThrottlingQuotaExceededError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.api_keys import ApiKey

# The first versions whose clients know the error.
_STRICT_FROM: Final = {
    int(ApiKey.CREATE_TOPICS): 6,
    int(ApiKey.DELETE_TOPICS): 5,
    int(ApiKey.CREATE_PARTITIONS): 3,
}


class MutationQuota:
    """Of one request."""

    def __init__(self, sensor: QuotaSensor, quotas: ClientQuotas, exchange: Exchange) -> None:
        self._sensor = sensor
        self._quotas = quotas
        self._exchange = exchange

    def spend(self, partitions: int) -> ProtocolError | None:
        """Why these partitions may not be created or deleted now; None where they may."""
        sensor = self._sensor
        assert sensor.bucket is not None
        now_ms = self._quotas.now_ms()
        strict = self._exchange.version >= _STRICT_FROM[self._exchange.api_key]
        if strict:
            throttle_ms = sensor.bucket.throttle_ms(now_ms)
            if throttle_ms > 0:
                self._hold(throttle_ms)
                return ThrottlingQuotaExceededError("The throttling quota has been exceeded.")
        self.record(partitions)
        if not strict:
            self._hold(sensor.bucket.throttle_ms(now_ms))
        return None

    def record(self, partitions: int) -> None:
        """What was changed without being asked about, also where there are no tokens left."""
        sensor, now_ms = self._sensor, self._quotas.now_ms()
        assert sensor.bucket is not None
        sensor.bucket.spend(partitions, now_ms)
        sensor.rate.record(partitions, now_ms)
        sensor.last_used_ms = now_ms

    def _hold(self, throttle_ms: int) -> None:
        self._exchange.throttle_ms = max(self._exchange.throttle_ms, throttle_ms)


class MutationQuotas:
    """Asked by the handlers that change topics."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def of(self, exchange: Exchange) -> MutationQuota | None:
        """None where the client has no such quota."""
        if exchange.quotas is None:
            return None
        sensor = self._quotas.mutation_sensor(exchange)
        return None if sensor is None else MutationQuota(sensor, self._quotas, exchange)
