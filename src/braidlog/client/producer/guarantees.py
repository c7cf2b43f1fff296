"""What acks, idempotence and the number of requests in flight allow together (KIP-679)."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from braidlog.client.errors import SettingError
from braidlog.client.settings import Settings

log = logging.getLogger("braidlog.client")

ALL: Final = -1
_MOST_IN_FLIGHT: Final = 5
_ACKS: Final = {"all": ALL, "-1": ALL, "0": 0, "1": 1}


class Guarantees(NamedTuple):
    acks: int
    idempotent: bool
    max_in_flight: int
    retries: int
    transactional_id: str | None


def guarantees_of(settings: Settings) -> Guarantees:
    """Idempotence is on unless something that was set rules it out; asked for explicitly, that is an error."""
    acks = _ACKS[settings.text("acks")]
    max_in_flight = settings.number("max.in.flight.requests.per.connection")
    retries = settings.number("retries")
    transactional_id = settings.optional_text("transactional.id")
    against: list[str] = []
    if acks != ALL:
        against.append(f"acks={settings.text('acks')} (it needs acks=all)")
    if max_in_flight > _MOST_IN_FLIGHT:
        against.append(f"max.in.flight.requests.per.connection={max_in_flight} (at most {_MOST_IN_FLIGHT})")
    if retries == 0:
        against.append("retries=0 (it needs retries)")
    idempotent = settings.flag("enable.idempotence")
    asked_for = settings.is_given("enable.idempotence") and idempotent
    if idempotent and against:
        if asked_for or transactional_id is not None:
            what = "transactional.id" if transactional_id is not None else "enable.idempotence"
            raise SettingError(f"{what} cannot be combined with {', '.join(against)}; change one of them")
        log.info("idempotence is off because of %s", ", ".join(against))
        idempotent = False
    if transactional_id is not None and not idempotent:
        raise SettingError("transactional.id needs enable.idempotence; leave that at its default")
    _check_times(settings)
    return Guarantees(acks, idempotent, max_in_flight, retries, transactional_id)


def _check_times(settings: Settings) -> None:
    least = settings.number("linger.ms") + settings.number("request.timeout.ms")
    if settings.number("delivery.timeout.ms") < least and settings.is_given("delivery.timeout.ms"):
        raise SettingError(
            f"delivery.timeout.ms={settings.number('delivery.timeout.ms')} is less than linger.ms + request.timeout.ms "
            f"({least}); raise it, or lower those"
        )
