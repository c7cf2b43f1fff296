"""Writes a schema as a Python module: slotted classes that mypyc compiles and the interpreter runs as they are."""

from __future__ import annotations

from tools.protocol.model import INTEGERS, Field, Schema, Struct, Versions
from tools.protocol.values import default_value, differs, parameter, stored


def condition(having: Versions, within: Versions) -> str:
    """The test that picks `having` out of `within`; empty when there is nothing to pick."""
    from_low, to_high = having.low > within.low, having.high < within.high
    if having.low == having.high and (from_low and to_high):
        return f"version == {having.low}"
    if from_low and to_high:
        return f"{having.low} <= version <= {having.high}"
    if from_low:
        return f"version >= {having.low}"
    return f"version <= {having.high}" if to_high else ""


class StructWriter:
    """The class of one struct."""

    def __init__(self, schema: Schema, struct: Struct) -> None:
        self.schema = schema
        self.struct = struct
        if struct.flexible.covers(struct.versions):
            self.flex = "True"
        elif not struct.flexible:
            self.flex = "False"
        else:
            self.flex = "flex"

    def lines(self) -> list[str]:
        name = self.struct.name
        # Values alone: the garbage collector need not look at them.
        out = ["@mypyc_attr(acyclic=True)", f"class {name}(Message):"]
        names = [f'"{item.name}"' for item in self.struct.fields]
        out.append(f"    __slots__ = ({', '.join(names)}{',' if len(names) == 1 else ''})")
        if self.struct.fields:
            out += ["", "    def __init__(", "        self,", "        *,"]
            out += [f"        {parameter(item)}," for item in self.struct.fields]
            out.append("    ) -> None:")
            out += [f"        {stored(item)}" for item in self.struct.fields]
        out += ["", "    def encode(self, w: Writer, version: int) -> None:"]
        out += [f"        {line}" for line in self.with_flex(self.encode_lines()) or ["pass"]]
        out += ["", "    @staticmethod", f"    def decode(r: Reader, version: int) -> {name}:"]
        out += [f"        {line}" for line in self.with_flex(self.decode_lines())]
        return out

    def with_flex(self, body: list[str]) -> list[str]:
        if self.flex == "flex" and any("flex" in line for line in body):
            return [f"flex = version >= {self.struct.flexible.low}", *body]
        return body

    def field_flex(self, item: Field) -> str:
        return "False" if item.inflexible else self.flex

    # -- decoding

    def read(self, item: Field, flex: str, having: Versions) -> str:
        """The expression that reads a field in the versions that have it."""
        nullable_when = condition(item.nullable, having) if item.nullable else "never"
        if item.array:
            return self.read_array(item, flex, nullable_when)
        if item.type == "records":
            return f"r.records({flex})"
        if item.type in ("string", "bytes"):
            kind = "string" if item.type == "string" else "blob"
            if nullable_when == "never":
                return f"r.{kind}({flex})"
            if not nullable_when:
                return f"r.nullable_{kind}({flex})"
            return f"(r.nullable_{kind}({flex}) if {nullable_when} else r.{kind}({flex}))"
        if item.type == "bool":
            return "r.boolean()"
        if item.type in INTEGERS or item.type in ("float64", "uuid"):
            return f"r.{item.type}()"
        if item.nullable:
            # In a tagged field null is 0, not a negative number (Kafka writes it although it is the default).
            there = "r.uvarint() > 0" if item.tag is not None else "r.present()"
            return f"({item.type}.decode(r, version) if {there} else None)"
        return f"{item.type}.decode(r, version)"

    def read_array(self, item: Field, flex: str, nullable_when: str) -> str:
        if item.type in INTEGERS or item.type in ("string", "uuid"):
            if nullable_when == "never":
                return f"r.{item.type}s({flex})"
            if nullable_when:
                return f"(r.nullable_{item.type}s({flex}) if {nullable_when} else r.{item.type}s({flex}))"
            return f"r.nullable_{item.type}s({flex})"
        smallest = self.schema.smallest(item.type)
        elements = f"[{item.type}.decode(r, version) for _ in range("
        if nullable_when == "never":
            return f"{elements}r.count({flex}, {smallest}))]"
        count = f"r.nullable_count({flex}, {smallest})"
        if nullable_when:
            count = f"{count} if {nullable_when} else r.count({flex}, {smallest})"
        return f"(None if (n := {count}) < 0 else {elements}n)])"

    def decode_lines(self) -> list[str]:
        struct = self.struct
        arguments = []
        for item in struct.untagged():
            value = self.read(item, self.field_flex(item), item.versions)
            when = condition(item.versions, struct.versions)
            if when:
                value = f"{value} if {when} else {default_value(item)}"
            arguments.append(f"    {item.name}={value},")
        call = [f"m = {struct.name}(", *arguments, ")"] if arguments else [f"m = {struct.name}()"]
        if self.flex == "False":
            return [call[0].replace("m =", "return", 1), *call[1:]]
        tags = self.decode_tags() if struct.tagged() else ["r.skip_tags()"]
        if self.flex == "flex":
            tags = ["if flex:", *(f"    {line}" for line in tags)]
        return [*call, *tags, "return m"]

    def decode_tags(self) -> list[str]:
        out = ["for _ in range(r.tag_count()):", "    tag = r.uvarint()", "    end = r.tag_end()"]
        keyword = "if"
        for item in self.struct.tagged():
            when = condition(item.versions, self.struct.flexible)
            test = f"tag == {item.tag}" + (f" and {when}" if when else "")
            out.append(f"    {keyword} {test}:")
            out.append(f"        m.{item.name} = {self.read(item, 'True', item.versions)}")
            keyword = "elif"
        out += ["    else:", "        r.skip_to(end)", "    r.expect(end)"]
        return out

    # -- encoding

    def write(self, item: Field, writer: str, flex: str) -> list[str]:
        """The statements that write a field in the versions that have it."""
        value = f"self.{item.name}"
        where = f'"{self.struct.name}.{item.name}", version'
        nullable_when = condition(item.nullable, item.versions) if item.nullable else "never"
        if item.array and not (item.type in INTEGERS or item.type in ("string", "uuid")):
            return self.write_structs(item, writer, flex, nullable_when)
        if item.type == "bool":
            return [f"{writer}.boolean({value})"]
        if item.type == "records":
            return [f"{writer}.records({value}, {flex})"]
        if item.array or item.type in ("string", "bytes"):
            kind = f"{item.type}s" if item.array else {"string": "string", "bytes": "blob"}[item.type]
            if nullable_when == "never":
                return [f"{writer}.{kind}({value}, {flex})"]
            if not nullable_when:
                return [f"{writer}.nullable_{kind}({value}, {flex})"]
            if item.type != "string" or item.array:
                raise ValueError(f"{self.struct.name}.{item.name}: only text may be nullable in some versions")
            return [
                f"if {nullable_when}:",
                f"    {writer}.nullable_string({value}, {flex})",
                "else:",
                f"    {writer}.string(required_text({value}, {where}), {flex})",
            ]
        if item.type in INTEGERS or item.type in ("float64", "uuid"):
            return [f"{writer}.{item.type}({value})"]
        if not item.nullable:
            return [f"{value}.encode({writer}, version)"]
        if item.tag is not None:
            return [f"{writer}.present(True)", f"{value}.encode({writer}, version)"]
        return [
            f"{writer}.present({value} is not None)",
            f"if {value} is not None:",
            f"    {value}.encode({writer}, version)",
        ]

    def write_structs(self, item: Field, writer: str, flex: str, nullable_when: str) -> list[str]:
        value = f"self.{item.name}"
        write = [
            f"{writer}.count(len({value}), {flex})",
            f"for {item.name}_entry in {value}:",
            f"    {item.name}_entry.encode({writer}, version)",
        ]
        if nullable_when == "never":
            return write
        null = [f"if {value} is None:"]
        if nullable_when:
            null += [f"    if not {nullable_when}:"]
            null += [f'        refuse_null("{self.struct.name}.{item.name}", version)']
        return [*null, f"    {writer}.null({flex})", "else:", *(f"    {line}" for line in write)]

    def encode_lines(self) -> list[str]:
        struct = self.struct
        out: list[str] = []
        for item in struct.untagged():
            write = self.write(item, "w", self.field_flex(item))
            when = condition(item.versions, struct.versions)
            if not when:
                out += write
                continue
            out += [f"if {when}:", *(f"    {line}" for line in write)]
            if not item.ignorable:
                out += [f"elif {differs(item)}:", f'    refuse("{struct.name}.{item.name}", version)']
        for item in struct.tagged():
            when = condition(item.versions, struct.versions)
            if when and not item.ignorable:
                lacking = f"version < {item.versions.low}" if ">=" in when else f"not {when}"
                out += [f"if {lacking} and ({differs(item)}):", f'    refuse("{struct.name}.{item.name}", version)']
        if self.flex == "False":
            return out
        tags = self.encode_tags() if struct.tagged() else ["w.uvarint(0)"]
        if self.flex == "flex":
            tags = ["if flex:", *(f"    {line}" for line in tags)]
        return out + tags

    def encode_tags(self) -> list[str]:
        tests = []
        for item in self.struct.tagged():
            when = condition(item.versions, self.struct.flexible)
            tests.append((item, f"{when} and {differs(item)}" if when else differs(item)))
        out = ["tags = 0"]
        for _, test in tests:
            out += [f"if {test}:", "    tags += 1"]
        out.append("w.uvarint(tags)")
        for item, test in tests:
            out += [f"if {test}:", "    t = Writer()"]
            out += [f"    {line}" for line in self.write(item, "t", "True")]
            out.append(f"    w.tag({item.tag}, t)")
        return out


def module_text(schema: Schema) -> str:
    body: list[str] = []
    for struct in schema.structs.values():
        body += ["", "", *StructWriter(schema, struct).lines()]
    text = "\n".join(body)
    imports = ["from mypy_extensions import mypyc_attr", ""]
    errors = [name for name in ("refuse", "refuse_null", "required_text") if f"{name}(" in text]
    if errors:
        imports.append(f"from braidlog.wire.errors import {', '.join(errors)}")
    names = [name for name in ("EMPTY", "ZERO_ID", "Message") if name in text]
    imports.append(f"from braidlog.wire.message import {', '.join(names)}")
    imports.append("from braidlog.wire.reader import Reader")
    imports.append(f"from braidlog.wire.writer import {'Records, ' if 'Records' in text else ''}Writer")
    head = [
        f'"""{schema.about}',
        "",
        f"Generated by `python -m tools.protocol` from schemas/{schema.module}.txt; edit that file instead.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *imports,
    ]
    return "\n".join(head) + "\n" + text + "\n"


def registry_text(schemas: list[Schema]) -> str:
    """The table of APIs: key, name, module, versions, Kafka 3.9's highest version, first flexible version or -1."""
    out = [
        '"""Which APIs there are: key, name, module, lowest and highest version, highest of Kafka 3.9, first flexible.',
        "",
        "Generated by `python -m tools.protocol` from tools/protocol/schemas; edit the files there instead.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
        "",
        "ROWS: Final[tuple[tuple[int, str, str, int, int, int, int], ...]] = (",
    ]
    apis = sorted((schema.api.key, schema) for schema in schemas if schema.api is not None)
    for key, schema in apis:
        api = schema.api
        assert api is not None
        flexible = -1 if api.flexible_from is None else api.flexible_from
        names = f'"{api.name}", "{schema.module}"'
        out.append(f"    ({key}, {names}, {api.versions.low}, {api.versions.high}, {api.stable}, {flexible}),")
    return "\n".join([*out, ")"]) + "\n"


def api_keys_text(schemas: list[Schema]) -> str:
    """The enumeration of API keys, named as their modules are."""
    out = [
        '"""The key of every API.',
        "",
        "Generated by `python -m tools.protocol` from tools/protocol/schemas; edit the files there instead.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from enum import IntEnum",
        "",
        "",
        "class ApiKey(IntEnum):",
    ]
    apis = sorted((schema.api.key, schema.module) for schema in schemas if schema.api is not None)
    return "\n".join([*out, *(f"    {module.upper()} = {key}" for key, module in apis)]) + "\n"
