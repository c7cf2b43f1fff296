"""A setting that claims an effect is read by somebody, and one that claims none is not.

What counts as reading is found in the code's syntax tree: a broker setting is asked for by its key in a call such as
`settings.get_int("num.partitions")`, a topic setting is a field of a `LogSettings`. A key in a comment, a docstring, a
message or any other string is not read by anyone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import braidlog
from braidlog.config import group, known
from braidlog.config.log_settings import LogSettings
from braidlog.config.topic import SYNONYMS
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.txn.transaction_metadata import TxnSettings
from braidlog.storage.cleaner.cleaning_request import CleanerConfig
from braidlog.storage.settings import StorageSettings

SOURCE = Path(braidlog.__file__).parent
# Modules that ask for settings without obeying them, and the command line's clients.
NOT_READERS = {
    *(f"config/{name}.py" for name in ("checks", "dynamic", "describe", "known", "log_settings", "sources")),
    *(f"cli/{name}.py" for name in ("options", "client_options")),
}
# Tables, and clients: those have settings of their own, some of the same names.
NOT_ROOMS = ("config/definitions/", "wire/generated/", "client/", "security/")
# Folded into what is read: the two bounds of timestamps, and broker.id.
READ_INDIRECTLY = {"message.timestamp.difference.max.ms", "node.id"}
# The controller reads it where it elects, from the topic's overrides (see test_partitions.py of the controller).
READ_INDIRECTLY |= {"unclean.leader.election.enable"}
# What bounds a group's own settings is asked for by way of this table (see test_group.py).
READ_INDIRECTLY |= {key for bounds in group.BOUNDS.values() for key in bounds}

# The methods of BrokerSettings that return a value, and where in their arguments the key is.
GETTERS = {"get_int": 0, "get_bool": 0, "get_str": 0, "get_float": 0, "get_list": 0, "get": 0, "get_for_listener": 1,
           "get_for_mechanism": 2}  # fmt: skip
# What settings are called: `settings`, `self._settings`, `log.settings`, `live.current`.
SETTINGS_NAMES = {"settings", "_settings", "current"}


class Reads:
    """What one module asks for; `own` where it is the module of the settings themselves."""

    def __init__(self, code: str, *, own: bool = False) -> None:
        self._names = SETTINGS_NAMES | {"self"} if own else SETTINGS_NAMES
        self.keys: set[str] = set()
        self.fields: set[str] = set()
        tree = ast.parse(code)
        # `_ALLOWED: Final = "some.key"`, at the top of a module.
        self._constants = {
            node.target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }
        # Functions of this module that ask for a key they are given: its place among their arguments.
        self._places = {**dict(self._aliases(tree)), **dict(self._forwarders(tree))}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and self._is_settings(node.value):
                self.fields.add(node.attr)

    def _call(self, call: ast.Call) -> None:
        key = self._key_of(call)
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            self.keys.add(key.value)
        elif isinstance(key, ast.Name) and key.id in self._constants:
            self.keys.add(self._constants[key.id])

    def _key_of(self, call: ast.Call) -> ast.expr | None:
        place = self._place(call.func)
        if place is None and isinstance(call.func, ast.Name):
            place = self._places.get(call.func.id)
        return None if place is None or len(call.args) <= place else call.args[place]

    def _place(self, function: ast.expr) -> int | None:
        if not isinstance(function, ast.Attribute) or function.attr not in GETTERS:
            return None
        # `get` is a dict's, too.
        is_ours = function.attr != "get" or self._is_settings(function.value)
        return GETTERS[function.attr] if is_ours else None

    def _aliases(self, tree: ast.AST) -> Iterator[tuple[str, int]]:
        """`number = settings.get_int`: calls of `number` ask for whole numbers."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                place = self._place(node.value)
                if place is not None:
                    yield node.targets[0].id, place

    def _forwarders(self, tree: ast.AST) -> Iterator[tuple[str, int]]:
        """`def limit(key): return settings.get_int(key)`: so do calls of `limit`."""
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            parameters = [argument.arg for argument in node.args.args]
            for call in ast.walk(node):
                place = self._place(call.func) if isinstance(call, ast.Call) else None
                if place is None or not isinstance(call, ast.Call) or len(call.args) <= place:
                    continue
                key = call.args[place]
                if isinstance(key, ast.Name) and key.id in parameters:
                    yield node.name, parameters.index(key.id)

    def _is_settings(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Attribute):
            return value.attr in self._names
        return isinstance(value, ast.Name) and value.id in self._names


def _modules() -> Iterator[Path]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name not in NOT_READERS and not name.startswith(NOT_ROOMS):
            yield path


@cache
def _reads() -> Reads:
    """What the whole source asks for. Once for all tests, and not on import: it reads for seconds."""
    found = Reads("")
    for path in _modules():
        reads = Reads(path.read_text(), own=path == SOURCE / "config/broker.py")
        found.keys |= reads.keys
        found.fields |= reads.fields
    # LogSettings reads some of its own fields: `settings.compacts` is the cleanup policy.
    own = Reads((SOURCE / "config/log_settings.py").read_text(), own=True).fields
    found.fields |= {field for field in LogSettings._fields if field in own}
    return found


def _inherited() -> set[str]:
    """Broker settings whose effect is that of the topic setting that falls back on them."""
    return {name for broker_key in SYNONYMS.values() for name in known.synonyms(broker_key)}


def _is_read(key: str) -> bool:
    return key.replace(".", "_") in _reads().fields or key in READ_INDIRECTLY


def _is_asked_for(key: str) -> bool:
    return key in _reads().keys or key in READ_INDIRECTLY


def _verdict(key: str, read: bool) -> str:
    return f"{key}: {'is read, drop no_effect' if read else 'is read by nobody, say no_effect'}"


def test_topic_settings_are_read_where_they_claim_an_effect() -> None:
    settings = known.topic_settings().values()
    wrong = [_verdict(each.key, _is_read(each.key)) for each in settings if _is_read(each.key) == bool(each.no_effect)]
    assert wrong == []


def test_broker_settings_are_read_where_they_claim_an_effect() -> None:
    settings = [*known.broker_settings(), *known.dynamic_only_settings().values()]
    inherited = _inherited()
    wrong = [
        _verdict(each.key, _is_asked_for(each.key))
        for each in settings
        if each.key not in inherited and _is_asked_for(each.key) == bool(each.no_effect)
    ]
    assert wrong == []


def test_an_inherited_setting_has_an_effect_where_the_topics_has() -> None:
    topic = known.topic_settings()
    for key, broker_key in SYNONYMS.items():
        setting = known.broker_setting(broker_key)
        assert setting is not None
        assert (setting.no_effect is None) == (topic[key].no_effect is None), broker_key


# The tests above must be able to fail.


@pytest.mark.parametrize(
    "code",
    [
        "limit = settings.get_int('num.partitions')",
        "limit = self._settings.current.get_int('num.partitions')",
        "limit = broker.settings.current.get('num.partitions')",
        "limit = settings.get_for_listener(name, 'num.partitions')",
        "number = settings.get_int\nlimit = number('num.partitions')",
        "def limit(key):\n    return lambda: settings.get_int(key)\nlimit('num.partitions')",
        "def make(settings):\n    number = settings.get_int\n    return Limits(most=number('num.partitions'))",
    ],
)
def test_asking_for_a_key_counts_as_reading(code: str) -> None:
    assert Reads(code).keys == {"num.partitions"}


@pytest.mark.parametrize(
    "code",
    [
        "# settings.get_int('num.partitions')",
        "'settings.get_int(\"num.partitions\")'",
        "def f():\n    '''Obeys num.partitions and .preallocate.'''",
        "log.warning('set num.partitions')",
        "raise UserError('settings.preallocate and num.partitions')",
        "KEYS = ('num.partitions',)",
        "texts.get('num.partitions')",
        "settings.is_set('num.partitions')",
        "number('num.partitions')",
        "if key == 'num.partitions': pass",
    ],
)
def test_a_mention_of_a_key_does_not_count(code: str) -> None:
    reads = Reads(code)
    assert "num.partitions" not in reads.keys
    assert "preallocate" not in reads.fields


def test_a_field_of_settings_counts_where_it_is_read() -> None:
    assert "preallocate" in Reads("if self.settings.preallocate: pass").fields
    assert "preallocate" in Reads("settings = log.settings\nreserve(settings.preallocate)").fields
    assert "preallocate" not in Reads("thing.preallocate").fields
    assert "preallocate" not in Reads("self.preallocate").fields
    assert "preallocate" not in Reads("settings.preallocate = True").fields
    assert "preallocate" not in Reads("text = f'.preallocate {settings}'").fields


# A setting that is copied into a class of settings is read where the copy is.

COPIES = (StorageSettings, CleanerConfig, GroupSettings, TxnSettings)


def test_what_is_copied_out_of_the_settings_is_read_too() -> None:
    loaded: set[str] = set()
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                loaded.add(node.attr)
    unread = [f"{each.__name__}.{field.name}" for each in COPIES for field in fields(each) if field.name not in loaded]
    assert unread == []
