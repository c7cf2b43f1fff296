"""The text of a .proto file, read into the descriptor that protoc would make of what decoding needs.

Proto2 and proto3: messages, enums, maps, oneofs, groups and extension ranges, nested as they may be. Registries hand
schemas out as text, and the protobuf package reads descriptors alone. Names of types stay as they are written: the
descriptor pool looks them up by the language's own rules of scope. Services, custom options and default values change
nothing about the bytes and are passed over; `extend` blocks too, so that extensions are unknown fields.
"""

from __future__ import annotations

import re
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    OneofDescriptorProto,
)

_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/"""
    r"""|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
    r"""|(?P<word>\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)"""
    r"""|(?P<number>(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)[fF]?)"""
    r"""|(?P<sign>[{}()\[\]<>=;,:+\-./])""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_SCALARS: Final = {
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "float": FieldDescriptorProto.TYPE_FLOAT,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "fixed64": FieldDescriptorProto.TYPE_FIXED64,
    "fixed32": FieldDescriptorProto.TYPE_FIXED32,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "sfixed32": FieldDescriptorProto.TYPE_SFIXED32,
    "sfixed64": FieldDescriptorProto.TYPE_SFIXED64,
    "sint32": FieldDescriptorProto.TYPE_SINT32,
    "sint64": FieldDescriptorProto.TYPE_SINT64,
}
_LABELS: Final = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_OPENING: Final = {"{": "}", "[": "]", "(": ")", "<": ">"}
_HIGHEST_FIELD: Final = (1 << 29) - 1
_DEEPEST: Final = 64


class ProtoSyntaxError(ValueError):
    """The text is no .proto file that is understood; the message says in which line, and why."""


def parse_proto(text: str, name: str) -> FileDescriptorProto:
    """The descriptor of a file; `name` is what others import it by."""
    return _Parser(text, name).file()


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._tokens = list(self._split(text))
        self._at = 0
        self._depth = 0
        self._is_proto3 = False

    def _split(self, text: str) -> list[tuple[str, str, int]]:
        """Kind, text and line of each token; the last one is of kind "end"."""
        found: list[tuple[str, str, int]] = []
        at, line = 0, 1
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ProtoSyntaxError(f"{self._name}, line {line}: unexpected {text[at : at + 10]!r}")
            if match.lastgroup is not None:
                found.append((match.lastgroup, match[0], line))
            line += match[0].count("\n")
            at = match.end()
        found.append(("end", "the end of the file", line))
        return found

    # Tokens

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._tokens[self._at][0] != "text" else ""

    def _take(self, kind: str, what: str) -> str:
        found, text, _ = self._tokens[self._at]
        if found != kind:
            raise self._wrong(what)
        self._at += 1
        return text

    def _word(self, what: str) -> str:
        return self._take("word", what)

    def _identifier(self, what: str) -> str:
        word = self._word(what)
        if "." in word:
            self._at -= 1
            raise self._wrong(what)
        return word

    def _sign(self, sign: str) -> None:
        if self._take("sign", repr(sign)) != sign:
            self._at -= 1
            raise self._wrong(repr(sign))

    def _skipped(self, text: str) -> bool:
        """Whether it comes next; then it is taken."""
        if self._peek() != text:
            return False
        self._at += 1
        return True

    def _whole(self, what: str) -> int:
        sign = -1 if self._skipped("-") else 1
        text = self._take("number", what)
        try:
            is_octal = len(text) > 1 and text.startswith("0") and text[1] not in "xX"
            return sign * int(text, 8 if is_octal else 0)
        except ValueError:
            self._at -= 1
            raise self._wrong(what) from None

    def _string(self, what: str) -> str:
        parts = [self._take("text", what)]
        while self._tokens[self._at][0] == "text":
            parts.append(self._take("text", what))
        return "".join(_ESCAPE.sub(r"\1", part[1:-1]) for part in parts)

    def _wrong(self, what: str) -> ProtoSyntaxError:
        kind, text, line = self._tokens[self._at]
        return ProtoSyntaxError(
            f"{self._name}, line {line}: {what} expected, not {text if kind == 'end' else repr(text)}"
        )

    # A file

    def file(self) -> FileDescriptorProto:
        made = FileDescriptorProto(name=self._name)
        if self._peek() in ("syntax", "edition"):
            is_edition = self._word("syntax") == "edition"
            self._sign("=")
            syntax = self._string("the syntax")
            if is_edition or syntax not in ("proto2", "proto3"):
                raise ProtoSyntaxError(f"{self._name} is of {syntax!r}; proto2 and proto3 are understood")
            self._sign(";")
            self._is_proto3 = syntax == "proto3"
            if self._is_proto3:
                made.syntax = syntax
        while self._tokens[self._at][0] != "end":
            self._top(made)
        return made

    def _top(self, made: FileDescriptorProto) -> None:
        if self._skipped(";"):
            return
        word = self._identifier("message, enum, import, package, option, extend or service")
        if word == "package":
            made.package = self._word("a package")
            self._sign(";")
        elif word == "import":
            self._import(made)
        elif word == "option":
            self._skip_statement()
        elif word == "message":
            self._message(made.message_type.add(), self._identifier("a message's name"))
        elif word == "enum":
            self._enum(made.enum_type.add())
        elif word in ("extend", "service"):
            self._word("a name")
            self._skip_group()
        else:
            self._at -= 1
            raise self._wrong("message, enum, import, package, option, extend or service")

    def _import(self, made: FileDescriptorProto) -> None:
        if self._skipped("public"):
            made.public_dependency.append(len(made.dependency))
        elif self._skipped("weak"):
            made.weak_dependency.append(len(made.dependency))
        made.dependency.append(self._string("the name of a file"))
        self._sign(";")

    # Messages

    def _message(self, made: DescriptorProto, name: str) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong("messages that nest less deeply")
        made.name = name
        self._sign("{")
        while not self._skipped("}"):
            self._member(made)
        self._depth -= 1
        # A field that is optional in proto3 is a oneof of its own, behind the others.
        for field in made.field:
            if field.proto3_optional:
                field.oneof_index = len(made.oneof_decl)
                made.oneof_decl.append(OneofDescriptorProto(name=_unused(f"_{field.name}", made)))

    def _member(self, made: DescriptorProto) -> None:
        if self._skipped(";"):
            return
        word = self._word("a field, message, enum, oneof, option, reserved or extensions")
        # These are words of the language only where they begin such a thing: fields may have types of these names.
        following = self._tokens[self._at]
        if word in ("message", "enum") and following[0] == "word" and self._tokens[self._at + 1][1] == "{":
            if word == "message":
                self._message(made.nested_type.add(), self._identifier("a message's name"))
            else:
                self._enum(made.enum_type.add())
        elif word == "oneof" and following[0] == "word" and self._tokens[self._at + 1][1] == "{":
            self._oneof(made)
        elif word == "extend" and following[0] == "word" and self._tokens[self._at + 1][1] == "{":
            self._word("a name")
            self._skip_group()
        elif word == "option" and (following[1] == "(" or self._tokens[self._at + 1][1] in ("=", ".")):
            self._skip_statement()
        elif word in ("reserved", "extensions") and (following[0] in ("number", "text") or word == "reserved"):
            self._ranges(made, word)
        elif word == "map" and following[1] == "<":
            self._map(made)
        elif word in _LABELS and following[0] == "word":
            self._field(made, self._word("a type"), word)
        else:
            self._field(made, word, "")

    def _field(self, made: DescriptorProto, kind: str, label: str, oneof: int | None = None) -> None:
        field = FieldDescriptorProto(label=_LABELS[label or "optional"])
        if kind == "group":
            name = self._identifier("a group's name")
            field.type, field.type_name, field.name = FieldDescriptorProto.TYPE_GROUP, name, name.lower()
        else:
            field.name = self._identifier("a field's name")
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type_name = kind
        self._number_and_options(field)
        if oneof is not None:
            field.oneof_index = oneof
        elif self._is_proto3 and label == "optional":
            field.proto3_optional = True
        made.field.append(field)
        if kind == "group":
            self._message(made.nested_type.add(), field.type_name)
        else:
            self._sign(";")

    def _number_and_options(self, field: FieldDescriptorProto) -> None:
        self._sign("=")
        field.number = self._whole("a field's number")
        if self._skipped("["):
            while not self._skipped("]"):
                if self._peek() == "json_name" and self._tokens[self._at + 1][1] == "=":
                    self._at += 2
                    field.json_name = self._string("a name")
                    self._skipped(",")
                else:
                    self._skip_option()

    def _map(self, made: DescriptorProto) -> None:
        self._sign("<")
        key = self._identifier("the type of a map's keys")
        self._sign(",")
        value = self._word("the type of a map's values")
        self._sign(">")
        if key not in _SCALARS:
            self._at -= 4
            raise self._wrong("a map whose keys are numbers, bool or string")
        field = FieldDescriptorProto(name=self._identifier("a field's name"), label=_LABELS["repeated"])
        self._number_and_options(field)
        self._sign(";")
        # On the wire a map is a repeated message of two fields, whose name every compiler derives alike.
        entry = made.nested_type.add(name=f"{_camel(field.name)}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_LABELS["optional"], type=_SCALARS[key])
        entry.field.add(name="value", number=2, label=_LABELS["optional"])
        if value in _SCALARS:
            entry.field[1].type = _SCALARS[value]
        else:
            entry.field[1].type_name = value
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, entry.name
        made.field.append(field)

    def _oneof(self, made: DescriptorProto) -> None:
        number = len(made.oneof_decl)
        made.oneof_decl.append(OneofDescriptorProto(name=self._identifier("a oneof's name")))
        self._sign("{")
        while not self._skipped("}"):
            if self._skipped(";"):
                continue
            word = self._word("a field")
            if word == "option" and (self._peek() == "(" or self._tokens[self._at + 1][1] in ("=", ".")):
                self._skip_statement()
            else:
                self._field(made, word, "", number)

    def _ranges(self, made: DescriptorProto, word: str) -> None:
        """Skip ranges of extensions and reserved names: they restrict changes of the file, not its use."""
        if word == "reserved":
            self._skip_statement()
            return
        while True:
            first = last = self._whole("a field's number")
            if self._skipped("to"):
                last = _HIGHEST_FIELD if self._skipped("max") else self._whole("a field's number")
            made.extension_range.add(start=first, end=last + 1)
            if not self._skipped(","):
                break
        self._skip_statement()

    # Enums

    def _enum(self, made: EnumDescriptorProto) -> None:
        made.name = self._identifier("an enum's name")
        self._sign("{")
        while not self._skipped("}"):
            if self._skipped(";"):
                continue
            word = self._identifier("an enum's value")
            if word == "option" and self._peek() != "=":
                if self._peek() == "allow_alias":
                    made.options.allow_alias = self._tokens[self._at + 2][1] == "true"
                self._skip_statement()
            elif word == "reserved" and self._peek() != "=":
                self._skip_statement()
            else:
                self._sign("=")
                made.value.add(name=word, number=self._whole("an enum's number"))
                if self._peek() == "[":
                    self._skip_group()
                self._sign(";")

    # What is passed over

    def _skip_statement(self) -> None:
        while not self._skipped(";"):
            self._skip_token()

    def _skip_option(self) -> None:
        """One of those between brackets, with the comma behind it."""
        while self._peek() != "]":
            if self._skipped(","):
                return
            self._skip_token()

    def _skip_token(self) -> None:
        kind, text, _ = self._tokens[self._at]
        if kind == "end" or (kind == "sign" and text in "}])"):
            raise self._wrong("';'")
        if kind == "sign" and text in _OPENING and text != "<":
            self._skip_group()
        else:
            self._at += 1

    def _skip_group(self) -> None:
        """From a bracket to its other half."""
        awaited: list[str] = []
        while True:
            kind, text, _ = self._tokens[self._at]
            if kind == "end":
                raise self._wrong(repr(awaited[-1]) if awaited else "'{'")
            if kind == "sign" and text in _OPENING and text != "<":
                awaited.append(_OPENING[text])
            elif kind == "sign" and text in "}])":
                if not awaited or awaited.pop() != text:
                    raise self._wrong("another bracket")
                if not awaited:
                    self._at += 1
                    return
            elif not awaited:
                raise self._wrong("'{'")
            self._at += 1


def _camel(name: str) -> str:
    """As protoc derives the name of a map's entry: letters behind an underscore, and the first, are large."""
    made: list[str] = []
    is_upper = True
    for sign in name:
        if sign == "_":
            is_upper = True
        else:
            made.append(sign.upper() if is_upper and sign.isascii() else sign)
            is_upper = False
    return "".join(made)


def _unused(name: str, message: DescriptorProto) -> str:
    taken = {each.name for each in message.oneof_decl} | {each.name for each in message.field}
    while name in taken:
        name = f"X{name}"
    return name
