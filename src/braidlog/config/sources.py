"""Where settings come from: a file in Java's properties syntax, environment variables, and the command line.

Environment: `BRAIDLOG_LOG_RETENTION_MS` sets `log.retention.ms`, `BRAIDLOG_HTTP_LISTEN` sets
`braidlog.http.listen`; the `KAFKA_` prefix of the Docker images of Kafka works as well, and gives way to ours.
One underscore stands for a dot, two for an underscore, three for a dash.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from braidlog.config import known
from braidlog.config.authorizer import authorizer_warnings
from braidlog.config.broker import BrokerSettings
from braidlog.config.checks import check_broker
from braidlog.config.listeners import parse_listeners
from braidlog.config.properties import PropertiesError, parse_properties
from braidlog.config.unsupported_settings import UnsupportedSettingsError, find_unsupported, unprotected
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import InvalidConfigError

_PREFIXES: Final = ("KAFKA_", "BRAIDLOG_")  # the later one wins
# Variables of braidlog itself, of Kafka's start scripts and of its Docker image, which set something else.
_NOT_SETTINGS: Final = frozenset((
    "BRAIDLOG_PURE", "BRAIDLOG_BOOTSTRAP", "BRAIDLOG_PROFILE", "BRAIDLOG_CRASH_AT", "BRAIDLOG_OPT", "BRAIDLOG_TARGET",
    "BRAIDLOG_WORKER", "BRAIDLOG_SIM_SEED", "BRAIDLOG_SIM_SEEDS",
    "BRAIDLOG_SCHEMA_REGISTRY", "BRAIDLOG_SCHEMA_REGISTRY_USER_INFO", "BRAIDLOG_SCHEMA_REGISTRY_TOKEN",
    "KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_JMX_OPTS", "KAFKA_JMX_PORT", "KAFKA_JMX_HOSTNAME",
    "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "KAFKA_LOG4J_LOGGERS", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_DEBUG", "KAFKA_HOME", "KAFKA_VERSION",
    "KAFKA_CLUSTER_ID",
))  # fmt: skip


class Loaded(NamedTuple):
    settings: BrokerSettings
    # Lines for the log at start: unknown keys, variables that set nothing, settings that protect nothing.
    warnings: list[str]


class Layer(NamedTuple):
    """Settings of one source, with the place each was written, for messages."""

    texts: dict[str, str]
    places: dict[str, str]


def load_settings(
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
    assignments: Iterable[str] = (),
) -> Loaded:
    """The broker's settings: command line before environment before file before defaults.

    Raises UserError, with the place of the mistake, for a file that cannot be read or a value that is not allowed, and
    UnsupportedSettingsError for settings that would leave the broker open or alone: all of them at once.
    """
    warnings: list[str] = []
    texts: dict[str, str] = {}
    places: dict[str, str] = {}
    layers = [from_file(file)] if file is not None else []
    layers += (from_environment(environment or {}, warnings), from_command_line(assignments))
    for layer in layers:
        texts.update(layer.texts)
        places.update(layer.places)
    _check_values(texts, places)
    try:
        settings = BrokerSettings(texts)
        check_broker(settings)
        warnings += (f"{places.get(key, key)}: {_unknown(key)}" for key in settings.unknown)
        refusals = find_unsupported(settings, places)
        if refusals:
            raise UnsupportedSettingsError(refusals, settings, warnings)
        parse_listeners(settings)
    except InvalidConfigError as problem:
        raise UserError(str(problem.message)) from problem
    warnings += (*authorizer_warnings(settings), *unprotected(settings))
    if any(key.startswith(known.LISTENER_PREFIX) for key in texts):
        from braidlog.config.listeners import overrides_without_effect

        for key, reason in overrides_without_effect(settings).items():
            warnings.append(f"{places.get(key, key)}: {key} has no effect: {reason}")
    return Loaded(settings, warnings)


def from_file(path: str) -> Layer:
    try:
        with open(path, "rb") as file:
            pairs = parse_properties(_decoded(file.read()))
    except OSError as problem:
        raise UserError(f"cannot read the settings file {path}: {problem.strerror or problem}") from problem
    except PropertiesError as problem:
        raise UserError(f"{path}:{problem.line}: {problem}") from problem
    return Layer({pair.key: pair.value for pair in pairs}, {pair.key: f"{path}:{pair.line}" for pair in pairs})


def _decoded(content: bytes) -> str:
    """As UTF-8, which is what editors write; else as ISO 8859-1, which is what Java reads."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def from_environment(environment: Mapping[str, str], warnings: list[str]) -> Layer:
    texts: dict[str, str] = {}
    places: dict[str, str] = {}
    for prefix in _PREFIXES:
        for variable in sorted(environment):
            if not variable.startswith(prefix) or variable in _NOT_SETTINGS:
                continue
            key = key_of_variable(variable)
            if key is None:
                warnings.append(f"environment variable {variable} sets nothing: {_nameless(variable)}")
            else:
                texts[key] = environment[variable]
                places[key] = f"environment variable {variable}"
    return Layer(texts, places)


def key_of_variable(variable: str) -> str | None:
    """The setting behind BRAIDLOG_X_Y or KAFKA_X_Y; none where no setting has that name."""
    prefix, key = _dotted(variable)
    if key == "zookeeper.clientcnxnsocket":
        return "zookeeper.clientCnxnSocket"  # the one key with capitals
    candidates = (key, f"braidlog.{key}") if prefix == "BRAIDLOG_" else (key,)
    return next((found for found in candidates if known.broker_setting_for(found) is not None), None)


def _dotted(variable: str) -> tuple[str, str]:
    """The prefix, and the key that the rest spells."""
    prefix = next(prefix for prefix in _PREFIXES if variable.startswith(prefix))
    name = variable[len(prefix) :].lower()
    return prefix, name.replace("___", "\0").replace("__", "\1").replace("_", ".").replace("\0", "-").replace("\1", "_")


def _nameless(variable: str) -> str:
    from braidlog.config.definitions.unlisted import FORMER

    key = _dotted(variable)[1]
    return f"Kafka no longer has {key}; {FORMER[key]}" if key in FORMER else "no setting has that name"


def from_command_line(assignments: Iterable[str]) -> Layer:
    texts: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set {assignment}: write it as --set key=value")
        texts[key.strip()] = value
    return Layer(texts, {key: f"--set {key}" for key in texts})


def _check_values(texts: Mapping[str, str], places: Mapping[str, str]) -> None:
    """Each value alone, so that a mistake is reported with its place."""
    for key, text in texts.items():
        setting = known.broker_setting_for(key)
        if setting is None:
            continue
        try:
            setting.parse(text)
        except InvalidConfigError as problem:
            raise UserError(f"{places[key]}: {problem.message}") from problem


def _unknown(key: str) -> str:
    from braidlog.config.definitions.unlisted import FORMER

    if key in FORMER:
        return f"Kafka no longer has {key}, and it has no effect; {FORMER[key]}"
    return f"unknown setting {key}{_meant(key)}"


def _meant(key: str) -> str:
    from difflib import get_close_matches

    if key in known.topic_settings():
        from braidlog.config.topic import SYNONYMS

        return f" (for topics; the broker's is {SYNONYMS[key]})" if key in SYNONYMS else " (it is a topic's)"
    close = get_close_matches(key, (setting.key for setting in known.broker_settings()), n=1, cutoff=0.85)
    return f" (did you mean {close[0]}?)" if close else ""
