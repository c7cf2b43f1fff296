"""Python types and default values of fields, and how a value is distinguished from its default."""

from __future__ import annotations

from tools.protocol.model import INTEGERS, SIZES, TEXT_LIKE, Field


def element_type(item: Field) -> str:
    if item.type in INTEGERS:
        return "int"
    return {"bool": "bool", "float64": "float", "string": "str", "bytes": "bytes", "uuid": "bytes"}.get(
        item.type, item.type
    )


def is_struct(item: Field) -> bool:
    return not item.array and item.type not in SIZES and item.type not in TEXT_LIKE


def may_be_none(item: Field) -> bool:
    """A tagged struct that is not there is None: no message pays for structs that hardly ever occur."""
    return bool(item.nullable) or (is_struct(item) and item.tag is not None)


def python_type(item: Field) -> str:
    """What the field holds."""
    if item.type == "records":
        return "Records"
    inner = f"list[{element_type(item)}]" if item.array else element_type(item)
    return f"{inner} | None" if may_be_none(item) else inner


def default_value(item: Field) -> str:
    """The protocol's default as an expression."""
    if item.default == "null" or item.type == "records" or (is_struct(item) and may_be_none(item)):
        return "None"
    if item.array:
        return "[]"
    if item.default is not None:
        if item.type == "bool":
            return item.default.capitalize()
        return f'"{item.default}"' if item.type == "string" else item.default
    if item.type in INTEGERS:
        return "0"
    simple = {"bool": "False", "float64": "0.0", "string": '""', "bytes": 'b""', "uuid": "ZERO_ID"}
    return simple.get(item.type, f"{item.type}()")


def parameter(item: Field) -> str:
    """The constructor's parameter; mutable defaults are made in the constructor, not shared."""
    held, default = python_type(item), default_value(item)
    if default == "[]":
        if may_be_none(item):
            return f"{item.name}: {held} = EMPTY"
        return f"{item.name}: {held} | None = None"
    if default.endswith("()"):
        return f"{item.name}: {held} | None = None"
    return f"{item.name}: {held} = {default}"


def stored(item: Field) -> str:
    """The statement in the constructor."""
    held, default = python_type(item), default_value(item)
    if default == "[]":
        unset = "EMPTY" if may_be_none(item) else "None"
        return f"self.{item.name}: {held} = [] if {item.name} is {unset} else {item.name}"
    if default.endswith("()"):
        return f"self.{item.name}: {held} = {default} if {item.name} is None else {item.name}"
    if may_be_none(item) or item.type == "records":
        return f"self.{item.name}: {held} = {item.name}"
    return f"self.{item.name} = {item.name}"


def differs(item: Field) -> str:
    """True when the field does not hold its default."""
    value, default = f"self.{item.name}", default_value(item)
    if default == "None":
        return f"{value} is not None"
    if default == "[]":
        return f"({value} is None or len({value}) > 0)" if may_be_none(item) else f"len({value}) > 0"
    if item.type == "bool":
        return value if default == "False" else f"not {value}"
    return f"{value} != {default}"
