"""Interceptors of a consumer (KIP-42): called before records are returned, and after offsets were committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from braidlog.client import interceptors
from braidlog.client.settings import Settings

Records = TypeVar("Records")


def interceptors_of(settings: Settings) -> ConsumerInterceptors | None:
    """None where `interceptor.classes` names none."""
    given = interceptors.interceptors_of(settings)
    return ConsumerInterceptors(given) if given else None


class ConsumerInterceptors:
    """Asked in the order of the settings, in the thread that polls; each sees what the one before it returned.

    An interceptor has one or both of

        on_consume(records) -> records       what `poll` is about to return; it may drop records or put others
        on_commit(offsets)                   {TopicPartition: OffsetAndMetadata} that the coordinator has taken

    and may have `configure(settings)` and `close()`.
    """

    def __init__(self, given: Sequence[object]) -> None:
        self._interceptors = given
        self._on_consume = interceptors.methods(self._interceptors, "on_consume")
        self._on_commit = interceptors.methods(self._interceptors, "on_commit")

    def on_consume(self, records: Records) -> Records:
        for on_consume in self._on_consume:
            try:
                records = on_consume(records)
            except Exception:
                interceptors.complain(on_consume, "looking at consumed records")
        return records

    def on_commit(self, offsets: Mapping[Any, Any]) -> None:
        for on_commit in self._on_commit:
            try:
                on_commit(offsets)
            except Exception:
                interceptors.complain(on_commit, "hearing of a commit")

    def close(self) -> None:
        interceptors.close_all(self._interceptors)
