"""Changes at run time: which broker settings may change where, and what an incremental alteration makes of a list."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from braidlog.config import group, known
from braidlog.config.broker import BrokerSettings
from braidlog.config.checks import check_broker
from braidlog.config.listeners import LISTENER_KEYS, PER_LISTENER, parse_listeners
from braidlog.config.rules import Value
from braidlog.config.setting import LIST, PER_BROKER, READ_ONLY, Setting, parse_list
from braidlog.config.topic import SYNONYMS, broker_default
from braidlog.core.protocol_errors import InvalidConfigError, InvalidRequestError

# The operations of IncrementalAlterConfigs (KIP-339).
SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

# Key material changes for one listener at a time (KIP-226).
_ONLY_PER_LISTENER: Final = frozenset((
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password", "ssl.keystore.key",
    "ssl.keystore.certificate.chain", "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.certificates",
))  # fmt: skip


class Alteration(NamedTuple):
    key: str
    operation: int
    value: str | None


def validate_dynamic(changes: Mapping[str, str], settings: BrokerSettings, *, per_broker: bool) -> None:
    """Raises InvalidConfigError unless `changes` may become the whole dynamic layer of a broker (or, with
    `per_broker` off, of all brokers).

    Unknown keys pass, as in Kafka, where plugins read their own. A topic's key does not: Kafka would keep it
    where it is never read.
    """
    stored = settings.dynamic_broker if per_broker else settings.dynamic_default
    # What an earlier version let in must not stand in the way of other changes.
    new = sorted(key for key in changes if key not in stored)
    for key in new:
        if known.broker_setting_for(key) is None and key in known.topic_settings():
            raise InvalidConfigError(_topics_own(key))
    _refuse(
        (key for key in changes if not _may_change(key)),
        "these settings cannot change at run time, only in the file of a broker before it starts",
    )
    _refuse(
        (key for key in changes if key in _ONLY_PER_LISTENER),
        "these settings change for one listener at a time: put listener.name.<listener>. before the key",
    )
    _refuse(
        (key for key in new if _is_the_same_for_all_listeners(key)),
        "these settings are the same for all listeners: leave out listener.name.<listener>.",
    )
    if not per_broker:
        _refuse(
            (key for key in changes if _belongs_to_one_broker(key)),
            "these settings change for one broker at a time: name the broker instead of all",
        )
    layers = (settings.dynamic_default, changes) if per_broker else (changes, settings.dynamic_broker)
    candidate = BrokerSettings(settings.static, dynamic_default=layers[0], dynamic_broker=layers[1])
    check_broker(candidate)
    if not LISTENER_KEYS.isdisjoint(changes):
        parse_listeners(candidate)


def _may_change(key: str) -> bool:
    setting = known.broker_setting_for(key)
    # Whether a listener may have its own is another question.
    return setting is None or setting.mode != READ_ONLY or known.listener_base(key) is not None


def _topics_own(key: str) -> str:
    broker_key = SYNONYMS.get(key)
    advice = f"the broker's is {broker_key}" if broker_key is not None else "name the topic instead of a broker"
    return f"{key} is a setting of topics, which no broker reads: {advice}"


def _is_the_same_for_all_listeners(key: str) -> bool:
    """Kafka takes such a change, which is then never read."""
    base = known.listener_base(key)
    setting = None if base is None else known.broker_setting(base)
    return setting is not None and setting.no_effect is None and setting.key not in PER_LISTENER


def _belongs_to_one_broker(key: str) -> bool:
    setting = known.broker_setting(key)
    return known.listener_base(key) is not None or (setting is not None and setting.mode == PER_BROKER)


def _refuse(keys: Iterable[str], problem: str) -> None:
    refused = sorted(keys)
    if refused:
        raise InvalidConfigError(f"{problem}: {', '.join(refused)}")


def alter_topic(
    current: Mapping[str, str], alterations: Iterable[Alteration], broker: BrokerSettings
) -> dict[str, str]:
    """A topic's overrides after the alterations; values are not checked here."""

    def inherited(key: str) -> tuple[Setting | None, Value]:
        setting = known.topic_settings().get(key)
        return setting, None if setting is None else broker_default(setting, broker)

    return _alter(current, alterations, inherited)


def alter_broker(
    current: Mapping[str, str], alterations: Iterable[Alteration], broker: BrokerSettings
) -> dict[str, str]:
    """A broker's (or all brokers') dynamic settings after the alterations; values are not checked here."""

    def inherited(key: str) -> tuple[Setting | None, Value]:
        setting = known.broker_setting_for(key)
        return setting, None if setting is None else broker.get(key)

    return _alter(current, alterations, inherited)


def alter_group(
    current: Mapping[str, str], alterations: Iterable[Alteration], broker: BrokerSettings
) -> dict[str, str]:
    """A group's overrides after the alterations; values are not checked here."""

    def inherited(key: str) -> tuple[Setting | None, Value]:
        setting = known.group_settings().get(key)
        return setting, None if setting is None else group.broker_default(setting, broker)

    return _alter(current, alterations, inherited)


def _alter(
    current: Mapping[str, str],
    alterations: Iterable[Alteration],
    inherited: Callable[[str], tuple[Setting | None, Value]],
) -> dict[str, str]:
    result = dict(current)
    seen: set[str] = set()
    for key, operation, value in alterations:
        if key in seen:
            raise InvalidRequestError(f"{key} is altered twice in one request: send it once")
        seen.add(key)
        if operation == DELETE:
            result.pop(key, None)
            continue
        if value is None:
            raise InvalidRequestError(f"{key} has no value: only a deletion goes without")
        if operation == SET:
            result[key] = value
        elif operation in (APPEND, SUBTRACT):
            setting, fallback = inherited(key)
            result[key] = _changed_list(key, operation, value, result.get(key), setting, fallback)
        else:
            raise InvalidRequestError(f"{key}: operation {operation} is none of set, delete, append, subtract (0-3)")
    return result


def _changed_list(
    key: str, operation: int, value: str, current: str | None, setting: Setting | None, fallback: Value
) -> str:
    if setting is None or setting.kind != LIST:
        verb = "append to" if operation == APPEND else "subtract from"
        raise InvalidConfigError(f"cannot {verb} {key}: it is not a list, set it instead")
    words = list(parse_list(current) if current is not None else fallback if isinstance(fallback, tuple) else ())
    changes = parse_list(value.strip())
    if operation == APPEND:
        words += (word for word in changes if word not in words)
    else:
        words = [word for word in words if word not in changes]
    return ",".join(words)
