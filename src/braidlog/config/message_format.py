"""Releases of Kafka as settings name them, and the format that a topic's records are stored in.

message.format.version    before 0.10.0     before 0.11.0     from 0.11.0 on
stored as                 message set v0    message set v1    record batch v2

It counts only where inter.broker.protocol.version is before 3.0-IV1 (KIP-724); then a topic's own goes before the
broker's log.message.format.version.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from braidlog.config.broker import BrokerSettings
from braidlog.config.rules import last_internal_version


class ProtocolVersion(NamedTuple):
    """As `3.5-IV1`; without a number after the release its last one is meant."""

    major: int
    minor: int
    internal: float = math.inf


NEWEST_FORMAT: Final = 2
# Where nothing older counts.
NEWEST_FORMAT_VERSION: Final = "3.0-IV1"
_FORMAT_1_FROM: Final = ProtocolVersion(0, 10, 0)
_FORMAT_2_FROM: Final = ProtocolVersion(0, 11, 0)
_IGNORED_FROM: Final = ProtocolVersion(3, 0, 1)


def parse_protocol_version(text: str) -> ProtocolVersion:
    """Of a text that the setting's rule has let through."""
    release, _, internal = text.partition("-IV")
    numbers = release.split(".")
    return ProtocolVersion(int(numbers[0]), int(numbers[1]), int(internal.split(".")[0]) if internal else math.inf)


def stored_format(version: str) -> int:
    """The magic of what is appended where this is the message.format.version."""
    release = parse_protocol_version(version)
    return NEWEST_FORMAT if release >= _FORMAT_2_FROM else 1 if release >= _FORMAT_1_FROM else 0


def broker_format_version(broker: BrokerSettings) -> str:
    """What topics get that set none, with its internal version."""
    if _is_ignored(broker):
        return NEWEST_FORMAT_VERSION
    return last_internal_version(broker.get_str("log.message.format.version"))


def topic_format_version(own: str | None, broker: BrokerSettings) -> str:
    """What counts for a topic that sets `own`."""
    return broker_format_version(broker) if own is None or _is_ignored(broker) else own


def format_without_effect(own: str | None, broker: BrokerSettings) -> str | None:
    """What to tell where an older format is asked for, by a topic or else by the broker, and not stored."""
    key = "message.format.version" if own is not None else "log.message.format.version"
    asked = own if own is not None else broker.get_str("log.message.format.version")
    if not _is_ignored(broker) or stored_format(asked) == NEWEST_FORMAT:
        return None
    return (
        f"{key}={asked} has no effect: inter.broker.protocol.version is "
        f"{broker.get_str('inter.broker.protocol.version')}, and from 3.0 on records are stored in format v2, which is "
        "converted for clients that cannot read it; remove the setting"
    )


def check_format(broker: BrokerSettings) -> str | None:
    """What is wrong where the broker asks for a format that its inter.broker.protocol.version does not know."""
    version, protocol = broker_format_version(broker), broker.get_str("inter.broker.protocol.version")
    if stored_format(version) <= stored_format(protocol):
        return None
    return (
        f"log.message.format.version {version} needs a newer inter.broker.protocol.version than {protocol}: set the "
        "former to the latter, too"
    )


def _is_ignored(broker: BrokerSettings) -> bool:
    return parse_protocol_version(broker.get_str("inter.broker.protocol.version")) >= _IGNORED_FROM
