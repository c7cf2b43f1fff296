"""Writes what follows from the tables of settings and metrics: `python -m tools.settings_doc`.

docs/SETTINGS.md, docs/CLIENT_SETTINGS.md, docs/METRICS.md, and src/braidlog/client/typed_settings.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

from braidlog.client.definitions.common import DIFFERENCES as CLIENT_DIFFERENCES
from braidlog.client.settings import ADMIN, COMMON, CONSUMER, PRODUCER, definitions, without_effect
from braidlog.config import known
from braidlog.config.definitions.braidlog import DIFFERENCES
from braidlog.config.group import BOUNDS
from braidlog.config.setting import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    TYPE_NAMES,
    Setting,
)
from braidlog.config.topic import SYNONYMS
from braidlog.metric_names import CATALOGUE

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TYPED_SETTINGS = ROOT / "src" / "braidlog" / "client" / "typed_settings.py"

SETTINGS_HEAD = """\
# Settings

Every setting that Kafka 3.9 documents, and braidlog's own (`braidlog.`). This page is written from the tables in
`src/braidlog/config/definitions/` by `python -m tools.settings_doc`.

## Where settings come from
The stronger first:

| source | how |
|---|---|
| changed at run time, for one broker | `kafka-configs --entity-type brokers --entity-name 1 --alter ...` |
| changed at run time, for all brokers | `kafka-configs --entity-type brokers --entity-default --alter ...` |
| command line | `braidlog serve --set log.retention.ms=3600000` |
| environment | `BRAIDLOG_LOG_RETENTION_MS=3600000`, or with the prefix `KAFKA_` as in the Docker images of Kafka |
| file | `braidlog serve --config server.properties`, in Java's properties syntax; refused settings see below |
| default | as in Kafka 3.9, except below |

In an environment variable one underscore stands for a dot, two for an underscore, three for a dash. A variable that
names no setting, and an unknown key, is warned about at start; the key is kept, as Kafka does.
A topic's own settings go before the broker's, which are named beside them below. So do those of a group of the newer
protocol (config resource 32, KIP-848, as from Kafka 4.0 on): `braidlog configs alter --group billing --set ...`.
`listener.name.<listener>.<key>` sets a key for one listener, its name in lower case: `max.connections` and
`max.connection.creation.rate`. With any other key, or for a listener that there is not, it is warned about at start,
and refused as a change at run time.

## Where braidlog differs from Kafka
| setting | Kafka's default | here | why |
|---|---|---|---|
{differences}

Refused here although Kafka takes it, since it could only do harm: `NaN` as a ratio, a port outside of 0 to 65535, the
address `[::]` as an advertised one, a listener's protocol given twice, one data directory given twice, `share`
among the group protocols. Numbers are not read in hexadecimal.

## Settings that keep a broker from starting
Settings that say who may do what, what is asked of clients, how much they may do, or to which cluster the broker
belongs, are refused while they have no effect: the broker would be open, or alone, without a sign of it. `serve` and
`doctor` name each with its place. A value that asks for nothing passes: an empty one, the default, both roles in
`process.roles`, a quorum that is this node alone.
`braidlog.allow.settings.without.effect=password.encoder.secret,principal.builder.class` (or `*`) lets the broker start
without what they ask for, with a warning for each. At run time such a change is answered with INVALID_CONFIG. The
parameters of TLS and SASL (keys, ciphers, mechanisms) have no effect without a listener that speaks them, as in Kafka.

| setting | what happens without its effect |
|---|---|
{refused}

Names of an older Kafka (`advertised.host.name`, `host.name`, `port` …) are warned about with what took their place.

## Reading the tables
*Changes*: `read-only` needs a restart; `per-broker` and `cluster-wide` change at run time (KIP-226). *Effect*: `none`
says why; what is set without effect is listed in one line at start.
"""

TITLES = {
    "braidlog": "braidlog's own",
    "network": "Broker and network",
    "log": "Logs and topic defaults",
    "replication": "Replication",
    "groups": "Groups",
    "transactions": "Producers and transactions",
    "security": "Security",
    "quotas": "Quotas",
    "metrics": "Metrics",
    "zookeeper": "ZooKeeper",
    "kraft": "KRaft",
    "tiered": "Tiered storage",
}

CLIENT_HEAD = """\
# Client settings

Every setting that Kafka 3.9 documents for its producer, consumer and admin client, and a few of our own. Written from
the tables in `src/braidlog/client/definitions/` by `python -m tools.settings_doc`.

    Producer(bootstrap_servers="localhost:9092", linger_ms=5)                 keyword arguments: underscores for dots
    Producer(bootstrap_servers="localhost:9092", linger=0.005)                a time without its unit is in seconds
    Producer({{"bootstrap.servers": "localhost:9092", "linger.ms": "5"}})     a mapping, such as a property file's

Keyword arguments win over the mapping. A wrong value is an error that names the setting. A keyword that is no setting
is an error with a suggestion, and so is a name in the mapping that is nearly one, or another library's name for one
(`ssl.ca.location`, `consumer_timeout_ms`). Any other dotted name in the mapping may be meant for another program, or
another kind of client: it is warned about in the log (`braidlog.client`), as is a setting that has no effect. Where
Kafka has a class name, give the Python object. The keywords have types (`braidlog.client.typed_settings`, written
from the same tables): mypy and an editor find a misspelt name and a wrong type before the program runs.

## Where defaults differ from Kafka's
| setting | Kafka's default | here | why |
|---|---|---|---|
{differences}

Not in Kafka: `sasl.username`, `sasl.password` (instead of `sasl.jaas.config`), `sasl.oauth.token.provider`.
`request.timeout.ms` has to be above 0.
"""

CLIENT_TITLES = {
    COMMON: "All clients",
    PRODUCER: "Producer",
    CONSUMER: "Consumer",
    ADMIN: "Admin",
}

TYPED_HEAD = '''\
"""The keyword settings of each client, for type checkers and editors; see docs/CLIENT_SETTINGS.md.

Written from the tables in `client.definitions` by `python -m tools.settings_doc`; do not edit. A time may be given
without its unit, in seconds: `linger=0.005` is `linger_ms=5`. None stands for the default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypedDict


class SerializeMethod(Protocol):
    """An object that turns keys or values into bytes."""

    def serialize(self, topic: str, value: Any, /) -> bytes | None: ...


class DeserializeMethod(Protocol):
    """An object that turns bytes into keys or values."""

    def deserialize(self, topic: str, data: bytes, /) -> Any: ...


# A name ("json", "str", "int64", …), a function, or an object with the method, or its class.
Serializer: TypeAlias = "str | Callable[[Any], bytes | None] | SerializeMethod | type[SerializeMethod]"
Deserializer: TypeAlias = "str | Callable[[bytes], Any] | DeserializeMethod | type[DeserializeMethod]"
'''

# What Python programs give where Kafka has the name of a class.
OBJECT_TYPES = {
    "key.serializer": "Serializer",
    "value.serializer": "Serializer",
    "key.deserializer": "Deserializer",
    "value.deserializer": "Deserializer",
    "sasl.oauth.token.provider": "Callable[[], Any]",
    "interceptor.classes": "str | Sequence[object]",
    "partition.assignment.strategy": "str | Sequence[object]",
}
PYTHON_TYPES = {
    BOOLEAN: "bool",
    STRING: "str",
    PASSWORD: "str",
    INT: "int",
    LONG: "int",
    SHORT: "int",
    DOUBLE: "float",
    LIST: "str | Sequence[str]",
}
TYPED_CLASSES = {
    COMMON: ("ClientSettings", "What every client has."),
    PRODUCER: ("ProducerSettings", "The keywords of `Producer`."),
    CONSUMER: ("ConsumerSettings", "The keywords of `Consumer` and `AsyncConsumer`."),
    ADMIN: ("AdminSettings", "The keywords of `Admin`."),
}
LINE = 120

METRICS_HEAD = """\
# Metrics

Served as Prometheus text at `/metrics` on `braidlog.http.listen`. Names are Kafka's MBeans in lower case; a rate
(`...PerSec`) there is a counter (`..._total`) here, a percentile there is a histogram. Numbers by topic have no line
without a topic: sum over the label. Written from `src/braidlog/metric_names.py` by `python -m tools.settings_doc`.

| metric | type | labels | meaning | Kafka's MBean |
|---|---|---|---|---|
"""


def settings_page() -> str:
    differences = "\n".join(
        f"| `{key}` | `{theirs}` | `{_setting(key).default_text}` | {why} |"
        for key, (theirs, why) in DIFFERENCES.items()
    )
    parts = [
        SETTINGS_HEAD.format(differences=differences, refused=_refused()),
        "\n## Topics\n",
        *_topic_table(),
        "\n## One group\n",
        *_group_table(),
    ]
    for theme, title in TITLES.items():
        module = import_module(f"braidlog.config.definitions.{theme}")
        parts += (f"\n## {title}\n", *_broker_table(module.SETTINGS))
    parts += ("\n## Not among Kafka's own\n", *_broker_table(known.unlisted_settings().values()))
    parts += ("\n## Only at run time\n", *_broker_table(known.dynamic_only_settings().values()))
    return "".join(parts)


def _refused() -> str:
    settings = [*known.broker_settings(), *known.unlisted_settings().values()]
    return "\n".join(
        f"| `{setting.key}` | {setting.protects} |"
        for setting in sorted(settings, key=lambda setting: setting.key)
        if setting.protects is not None and setting.no_effect is not None
    )


def client_page() -> str:
    common = definitions(COMMON)
    every = {**definitions(PRODUCER), **definitions(CONSUMER), **definitions(PRODUCER)}
    differences = "\n".join(
        f"| `{key}` | `{theirs}` | `{every[key].default_text}` | {why} |"
        for key, (theirs, why) in CLIENT_DIFFERENCES.items()
    )
    parts = [CLIENT_HEAD.format(differences=differences)]
    for kind, title in CLIENT_TITLES.items():
        # What a kind has otherwise than all is listed with it once more.
        rows = [row for key, row in definitions(kind).items() if kind == COMMON or common.get(key) is not row]
        parts += (f"\n## {title}\n", *_client_table(rows))
    parts += ("\n## Without effect\n", *_client_table(without_effect().values()))
    return "".join(parts)


def _client_table(settings: Iterable[Setting]) -> Iterator[str]:
    yield "| setting | type | default | values | what it does | effect |\n|---|---|---|---|---|---|\n"
    for setting in sorted(settings, key=lambda setting: setting.key):
        yield f"| {_facts(setting)} | {setting.doc} | {_effect(setting)} |\n"


def typed_settings() -> str:
    """The source of `braidlog.client.typed_settings`."""
    common = {**without_effect(), **definitions(COMMON)}
    parts = [TYPED_HEAD]
    for kind, (name, doc) in TYPED_CLASSES.items():
        base = "TypedDict" if kind == COMMON else TYPED_CLASSES[COMMON][0]
        # A kind that has another default than all still has the same type.
        rows = common if kind == COMMON else {k: row for k, row in definitions(kind).items() if k not in common}
        parts.append(f'\n\nclass {name}({base}, total=False):\n    """{doc}"""\n\n')
        for key, row in sorted(rows.items()):
            parts += _typed_keys(key, row)
    return "".join(parts)


def _typed_keys(key: str, row: Setting) -> Iterator[str]:
    keyword = key.replace(".", "_")
    yield _typed_key(keyword, _python_type(row))
    if key.endswith(".ms") and key not in without_effect():
        yield _typed_key(keyword.removesuffix("_ms"), "float")


def _typed_key(keyword: str, kind: str) -> str:
    line = f"    {keyword}: {kind} | None\n"
    if len(line) <= LINE:
        return line
    # Only lists of words get that long.
    words = "".join(f"        {word},\n" for word in kind.removeprefix("Literal[").removesuffix("]").split(", "))
    return f"    {keyword}: Literal[\n{words}    ] | None\n"


def _python_type(row: Setting) -> str:
    if row.key in OBJECT_TYPES:
        return OBJECT_TYPES[row.key]
    words = row.rule.words if row.rule is not None else ()
    if not words:
        return PYTHON_TYPES.get(row.kind, "object")
    numbers = [word for word in words if word.lstrip("-").isdecimal()]
    return f"Literal[{', '.join([*(json.dumps(word) for word in words), *numbers])}]"


def metrics_page() -> str:
    rows = (
        f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.help} | "
        f"{f'`{metric.mbean}`' if metric.mbean else ''} |\n"
        for metric in CATALOGUE.values()
    )
    return METRICS_HEAD + "".join(rows)


def _setting(key: str) -> Setting:
    setting = known.broker_setting(key)
    assert setting is not None
    return setting


def _group_table() -> Iterator[str]:
    yield "| setting | type | default | values | from the broker | bounds | what it does | effect |\n"
    yield "|---|---|---|---|---|---|---|---|\n"
    for setting in sorted(known.group_settings().values(), key=lambda setting: setting.key):
        least, broker_key, most = BOUNDS[setting.key]
        bounds = f"`{least}` to `{most}`"
        yield f"| {_facts(setting)} | `{broker_key}` | {bounds} | {setting.doc} | {_effect(setting)} |\n"


def _topic_table() -> Iterator[str]:
    yield "| setting | type | default | values | broker's | what it does | effect |\n|---|---|---|---|---|---|---|\n"
    for key, setting in sorted(known.topic_settings().items()):
        broker = f"`{SYNONYMS[key]}`" if key in SYNONYMS else ""
        yield f"| {_facts(setting)} | {broker} | {setting.doc} | {_effect(setting)} |\n"


def _broker_table(settings: Iterable[Setting]) -> Iterator[str]:
    yield "| setting | type | default | values | changes | what it does | effect |\n|---|---|---|---|---|---|---|\n"
    for setting in sorted(settings, key=lambda setting: setting.key):
        yield f"| {_facts(setting)} | {setting.mode} | {setting.doc} | {_effect(setting)} |\n"


def _facts(setting: Setting) -> str:
    default = setting.default_text
    shown = "" if default is None else "empty" if default == "" else f"`{default}`"
    return f"`{setting.key}` | {TYPE_NAMES[setting.kind]} | {shown} | {setting.valid_values}"


def _effect(setting: Setting) -> str:
    if setting.no_effect is None:
        return "yes"
    return f"{'none' if setting.protects is None else 'refused'}: {setting.no_effect}"


def main() -> None:
    (DOCS / "SETTINGS.md").write_text(settings_page())
    (DOCS / "CLIENT_SETTINGS.md").write_text(client_page())
    (DOCS / "METRICS.md").write_text(metrics_page())
    TYPED_SETTINGS.write_text(typed_settings())


if __name__ == "__main__":
    main()
