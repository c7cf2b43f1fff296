"""What can be said of a pipeline's sources before Spark is started, which takes longer than people wait for a typo.

The file is read, not run. What it says in plain words about the topics that it reads is checked: chains of
`spark.readStream.format("braidlog").option(…).load()` in the function's own statements, whose options are literals or
constants of the file. Where anything else could have a say (a condition, a call of something that may create topics) it
is left to the query.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from braidlog.core.errors import UserError
from pyspark_braidlog.source.offset_reader import OffsetReader
from pyspark_braidlog.source.options import ReadOptions
from pyspark_braidlog.source.topics import SubscribePattern

_FORMAT: Final = "braidlog"
# Packages whose functions touch no topics.
_HARMLESS: Final = ("pyspark", "pyspark_braidlog")
# Where constants come from.
_CONSTANT: Final = {"os", "pathlib", "Path", "dict", "str", "int"}
# What is in these may not come to pass, or not now.
_UNCERTAIN: Final = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

Names = dict[str, Any]


class Source(NamedTuple):
    line: int
    options: dict[str, str]


class _Unknown(Exception):
    """Only running the file would tell."""


def check_sources(path: Path, function: str) -> None:
    """UserError, with the line, for options that are wrong and topics that do not exist."""
    for source in sources_of(path.read_text(encoding="utf-8"), function):
        try:
            _check(source.options)
        except UserError as problem:
            raise UserError(f"{path}, line {source.line}: {problem}") from None


def _check(options: Mapping[str, str]) -> None:
    chosen = ReadOptions.for_stream(options)
    if isinstance(chosen.consumer_strategy, SubscribePattern) or not chosen.fail_on_data_loss:
        # A stream may go on without topics that are gone.
        return
    with OffsetReader(chosen.client) as cluster:
        cluster.topics(chosen.consumer_strategy)


def sources_of(text: str, function: str) -> list[Source]:
    """Those that the function is certain to read; none of a file that is no Python."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    found = next((each for each in module.body if isinstance(each, ast.FunctionDef) and each.name == function), None)
    if found is None or not found.args.args or not all(map(_is_plain, module.body)):
        return []
    return list(_walk(found, found.args.args[0].arg, _constants(module), _imported(module.body)))


def _is_plain(statement: ast.stmt) -> bool:
    """Whether a statement of the file itself cannot have to do with topics."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)):
        calls = [each for each in ast.walk(statement) if isinstance(each, ast.Call)]
        return all(_root(each.func) in _CONSTANT for each in calls)
    is_main = isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)
    return is_main or isinstance(statement, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))


def _walk(function: ast.FunctionDef, session: str, names: Names, harmless: set[str]) -> Iterator[Source]:
    harmless = harmless | {session}
    for statement in function.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            harmless |= _imported([statement])
            continue
        if isinstance(statement, ast.FunctionDef):
            continue
        if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)):
            return
        if not all(_root(each.func) in harmless for each in ast.walk(statement) if isinstance(each, ast.Call)):
            return
        for call in _certain_calls(statement):
            try:
                source = _source(call, session, names)
            except _Unknown:
                continue
            if source is not None:
                yield source
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            _assign(statement, names, harmless)


def _assign(statement: ast.Assign | ast.AnnAssign, names: Names, harmless: set[str]) -> None:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for target in targets:
        for each in ast.walk(target):
            if isinstance(each, ast.Name):
                names.pop(each.id, None)
                # What comes from a session or a DataFrame is one.
                harmless.add(each.id)
    if len(targets) == 1 and isinstance(targets[0], ast.Name) and statement.value is not None:
        try:
            names[targets[0].id] = _value(statement.value, names)
        except _Unknown:
            return


def _constants(module: ast.Module) -> Names:
    """Names that the file gives one value, outside of functions and conditions."""
    times = Counter(
        each.id
        for statement in module.body
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef))
        for each in ast.walk(statement)
        if isinstance(each, ast.Name) and isinstance(each.ctx, (ast.Store, ast.Del))
    )
    names: Names = {}
    for statement in module.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            _assign(statement, names, set())
    return {name: value for name, value in names.items() if times[name] == 1}


def _imported(statements: list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").split(".")[0] in _HARMLESS:
            names |= {each.asname or each.name for each in statement.names}
        elif isinstance(statement, ast.Import):
            names |= {
                each.asname or each.name.split(".")[0]
                for each in statement.names
                if each.name.split(".")[0] in _HARMLESS
            }
    return names


def _root(node: ast.expr) -> str | None:
    """The name that a chain of calls and attributes begins with."""
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _certain_calls(node: ast.AST) -> Iterator[ast.Call]:
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _UNCERTAIN):
            yield from _certain_calls(child)


def _source(call: ast.Call, session: str, names: Names) -> Source | None:
    """What `spark.readStream.….load()` says; none of other calls."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "load" or call.args or call.keywords:
        return None
    options: dict[str, str] = {}
    kind: Any = None
    node = call.func.value
    while isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Attribute):
            raise _Unknown
        given = [_value(each, names) for each in node.args]
        named = _mapping([(each.arg, each.value) for each in node.keywords], names)
        # From the last to the first: what was said later counts.
        match node.func.attr, given:
            case "format", [name]:
                kind = kind or name
            case "option", [name, value]:
                options.setdefault(str(name).lower(), _text(value))
            case "options", []:
                options = {name.lower(): _text(value) for name, value in named.items()} | options
            case "schema" | "name", [_]:
                pass
            case _:
                raise _Unknown
        node = node.func.value
    if not (isinstance(node, ast.Attribute) and node.attr == "readStream" and _is_name(node.value, session)):
        return None
    return Source(call.lineno, options) if kind == _FORMAT else None


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _value(node: ast.expr, names: Names) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Dict(keys=keys, values=values):
            pairs = []
            for key, value in zip(keys, values, strict=True):
                pairs.append((None if key is None else str(_value(key, names)), value))
            return _mapping(pairs, names)
        case ast.JoinedStr(values=parts):
            return "".join(str(_value(each, names)) for each in parts)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return _value(value, names)
        case _:
            raise _Unknown


def _mapping(pairs: list[tuple[str | None, ast.expr]], names: Names) -> dict[str, Any]:
    """Keys and values, and under no key a mapping that is put in their midst by `**`."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        part = _value(value, names)
        if key is not None:
            found[key] = part
        elif isinstance(part, dict):
            found |= part
        else:
            raise _Unknown
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise _Unknown
