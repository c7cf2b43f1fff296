"""Interceptors of a producer (KIP-42): asked before a record is serialized, told when it is acknowledged or failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from braidlog.client import interceptors
from braidlog.client.producer.delivery import ProducerRecord
from braidlog.client.settings import Settings


def interceptors_of(settings: Settings) -> ProducerInterceptors | None:
    """None where `interceptor.classes` names none, so that nobody need be asked."""
    given = interceptors.interceptors_of(settings)
    return ProducerInterceptors(given) if given else None


class ProducerInterceptors:
    """Asked in the order of the settings; each sees what the one before it returned.

    An interceptor has one or both of

        on_send(record: ProducerRecord) -> ProducerRecord     in the caller's thread; `record._replace(…)` changes it
        on_acknowledgement(metadata, error)                   in the engine's thread: exactly one of the two is None,
                                                              but for failures whose partition was known

    and may have `configure(settings)` and `close()`.
    """

    def __init__(self, given: Sequence[object]) -> None:
        self._interceptors = given
        self._on_send = interceptors.methods(self._interceptors, "on_send")
        self._on_acknowledgement = interceptors.methods(self._interceptors, "on_acknowledgement")

    @property
    def want_acknowledgements(self) -> bool:
        return bool(self._on_acknowledgement)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for on_send in self._on_send:
            try:
                record = on_send(record)
            except Exception:
                interceptors.complain(on_send, f"sending a record to topic {record.topic}")
        return record

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        for on_acknowledgement in self._on_acknowledgement:
            try:
                on_acknowledgement(metadata, error)
            except Exception:
                interceptors.complain(on_acknowledgement, "hearing of an acknowledgement")

    def close(self) -> None:
        interceptors.close_all(self._interceptors)
