"""One setting: its key, type, default, the values it takes, who may change it when, and what it does here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from braidlog.config.rules import Rule, Value
from braidlog.core.protocol_errors import InvalidConfigError

if TYPE_CHECKING:
    from braidlog.config.broker import BrokerSettings

# Whether a value asks for nothing that is not there.
Harmless: TypeAlias = "Callable[[Value, BrokerSettings], bool]"

# The type codes of DescribeConfigs (KIP-569); 0 is an unknown setting.
UNKNOWN: Final = 0
BOOLEAN: Final = 1
STRING: Final = 2
INT: Final = 3
SHORT: Final = 4
LONG: Final = 5
DOUBLE: Final = 6
LIST: Final = 7
CLASS: Final = 8
PASSWORD: Final = 9

TYPE_NAMES: Final = (
    "unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password",
)  # fmt: skip

HIGH: Final = "high"
MEDIUM: Final = "medium"
LOW: Final = "low"

# When a broker setting may change (KIP-226).
READ_ONLY: Final = "read-only"
PER_BROKER: Final = "per-broker"
CLUSTER_WIDE: Final = "cluster-wide"

_RANGES: Final = {INT: (-(2**31), 2**31 - 1), SHORT: (-(2**15), 2**15 - 1), LONG: (-(2**63), 2**63 - 1)}
# Patterns stay text: `re` compiles one when it is first used, which at most starts is never.
_DECIMAL: Final = r"[+-]?[0-9]+"
# What Java accepts as a double, without its hexadecimal form: a trailing f or d is a type suffix.
_DOUBLE: Final = r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)"
_COMMA: Final = r"\s*,\s*"
# Java's String.trim drops every character up to the space.
_BLANKS: Final = "".join(map(chr, range(0x21)))


class Setting:
    """A row of `config.definitions`."""

    __slots__ = (
        "default", "doc", "harmless", "importance", "internal", "key", "kind", "mode", "no_effect", "protects", "rule",
    )  # fmt: skip

    def __init__(
        self,
        key: str,
        kind: int,
        default: Value,
        importance: str,
        *,
        doc: str,
        rule: Rule | None = None,
        mode: str = READ_ONLY,
        internal: bool = False,
        no_effect: str | None = None,
        protects: str | None = None,
        harmless: Harmless | None = None,
    ) -> None:
        self.key = key
        self.kind = kind
        # A LIST is declared as the text people write, `"compact,delete"`.
        self.default: Value = parse_list(default) if kind == LIST and isinstance(default, str) else default
        self.importance = importance
        self.doc = doc
        self.rule = rule
        self.mode = mode
        # Kafka lists an internal setting only where it is set.
        self.internal = internal
        # Why braidlog accepts the setting without doing anything; none where it is implemented.
        self.no_effect = no_effect
        # What happens while the setting has no effect: for one that people rely on to keep intruders out, to limit
        # clients or to join a cluster. Until it has its effect, a broker does not start with it (`config.refusals`).
        self.protects = protects
        # Which values of it are let pass all the same; the default where there is no rule.
        self.harmless = harmless

    @property
    def sensitive(self) -> bool:
        return self.kind == PASSWORD

    @property
    def default_text(self) -> str | None:
        return to_text(self.default)

    @property
    def valid_values(self) -> str:
        """What the setting takes, for people; empty where its type says it all."""
        return self.rule.text if self.rule is not None else ""

    def parse(self, text: str | None) -> Value:
        """The typed value of what was written; raises InvalidConfigError that says what is allowed."""
        value = None if text is None else self._convert(text)
        # Whatever need not be set may be left unset.
        if self.rule is not None and not (value is None and self.default is None):
            problem = self.rule.problem(value)
            if problem is not None:
                raise self._refusal(text, problem)
        return value

    def _convert(self, text: str) -> Value:
        trimmed = text.strip(_BLANKS)
        if self.kind == BOOLEAN:
            lowered = trimmed.lower()
            if lowered not in ("true", "false"):
                raise self._refusal(text, "expected true or false")
            return lowered == "true"
        if self.kind in _RANGES:
            return self._whole_number(text, trimmed)
        if self.kind == DOUBLE:
            if not re.fullmatch(_DOUBLE, trimmed):
                raise self._refusal(text, "expected a number such as 0.5")
            return float(trimmed.rstrip("fFdD") if "n" not in trimmed else trimmed)
        if self.kind == LIST:
            return parse_list(trimmed)
        return trimmed

    def _whole_number(self, text: str, trimmed: str) -> int:
        low, high = _RANGES[self.kind]
        if not re.fullmatch(_DECIMAL, trimmed):
            raise self._refusal(text, "expected a whole number")
        # No number of these types has more digits; Python refuses to convert thousands of them.
        number = int(trimmed) if len(trimmed.lstrip("+-0")) <= 19 else high + 1
        if not low <= number <= high:
            raise self._refusal(text, f"a {TYPE_NAMES[self.kind]} lies between {low} and {high}")
        return number

    def _refusal(self, text: str | None, problem: str) -> InvalidConfigError:
        shown = "[hidden]" if self.sensitive else text
        return InvalidConfigError(f"Invalid value {shown} for configuration {self.key}: {problem}")

    def __repr__(self) -> str:
        return f"Setting({self.key!r})"


def parse_list(text: str) -> tuple[str, ...]:
    return tuple(re.split(_COMMA, text)) if "," in text else ((text,) if text else ())


def to_text(value: Value) -> str | None:
    """The value as Kafka writes it in a response."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _double_text(value)
    return str(value)


def _double_text(value: float) -> str:
    """As Java writes it: plain between 0.001 and 10 million, else one digit before the dot and an exponent."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = _scientific(value)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _scientific(value: float) -> tuple[str, str, int]:
    mantissa, _, exponent = f"{value!r}".lower().partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    fraction = fraction.rstrip("0")
    digits = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(digits)
    return sign, digits.rstrip("0") or "0", int(exponent or 0) + len(whole) - 1 - leading_zeros
