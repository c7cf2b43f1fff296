"""Interceptors that leave their mark."""

from __future__ import annotations

from typing import Any

from braidlog.client.producer.delivery import ProducerRecord
from braidlog.client.settings import Settings


class Stamp:
    """Appends its sign to all it sees; with `fails`, raises instead."""

    def __init__(self, sign: str = "?", fails: bool = False) -> None:
        self.sign = sign
        self.fails = fails
        self.seen: list[Any] = []

    def configure(self, settings: Settings) -> None:
        self.client_id = settings.text("client.id")

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self._look(record)
        return record._replace(value=record.value + self.sign)

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        self._look((metadata, error))

    def on_consume(self, records: list[str]) -> list[str]:
        self._look(records)
        return [*records, self.sign]

    def on_commit(self, offsets: Any) -> None:
        self._look(offsets)

    def close(self) -> None:
        self._look("closed")

    def _look(self, what: Any) -> None:
        self.seen.append(what)
        if self.fails:
            raise RuntimeError("not today")


class OnlyCommits:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_commit(self, offsets: Any) -> None:
        self.seen.append(offsets)
