"""Who a client is by its certificate: the distinguished name, as the listener's rules change it.

    ssl.principal.mapping.rules    RULE:<pattern>/<replacement>/[L|U], …, DEFAULT

The first rule whose pattern matches the whole name counts; `$1` in its replacement is what the pattern's first group
found, L and U make it lower or upper case. DEFAULT leaves the name as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from braidlog.core.errors import BraidlogError, UserError

# Java's short names (RFC 2253) of what `ssl` names in full.
_SHORT: Final = {
    "commonName": "CN", "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "streetAddress": "STREET", "domainComponent": "DC", "userId": "UID",
}  # fmt: skip
# Others go by their number, and their value as DER in hexadecimal: IA5String for the first, UTF8String for the rest.
_NUMBERS: Final = {
    "emailAddress": ("1.2.840.113549.1.9.1", 0x16), "serialNumber": ("2.5.4.5", 0x13), "title": ("2.5.4.12", 0x0C),
    "givenName": ("2.5.4.42", 0x0C), "surname": ("2.5.4.4", 0x0C), "dnQualifier": ("2.5.4.46", 0x13),
}  # fmt: skip
_RULE: Final = re.compile(
    r"\s*(?:RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)|(?P<default>DEFAULT))\s*(?:,|$)"
)
_REFERENCE: Final = re.compile(r"\$(\d)")


class NoMatchingRuleError(BraidlogError):
    """No rule says who this certificate's owner is."""


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """The subject of what `SSLObject.getpeercert` returned, as Java writes it: the last part first."""
    parts = []
    for relative in reversed(certificate.get("subject", ())):
        parts.append("+".join(_attribute(name, value) for name, value in relative))
    return ",".join(parts)


def _attribute(name: str, value: str) -> str:
    if name in _SHORT:
        return f"{_SHORT[name]}={_escaped(value)}"
    number, tag = _NUMBERS.get(name, (name, 0x0C))
    content = value.encode()
    size = bytes((len(content),)) if len(content) < 0x80 else b"\x82" + len(content).to_bytes(2, "big")
    return f"{number}=#{(bytes((tag,)) + size + content).hex()}"


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(text) > 1 else text


class _Rule(NamedTuple):
    # None for DEFAULT.
    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        text = _REFERENCE.sub(lambda reference: found[int(reference[1])] or "", self.replacement)
        return text.lower() if self.case == "L" else text.upper() if self.case == "U" else text


class SslPrincipalMapper:
    def __init__(self, rules: Iterable[_Rule]) -> None:
        self._rules = tuple(rules)

    def name_of(self, distinguished: str) -> str:
        """Raises NoMatchingRuleError."""
        for rule in self._rules:
            name = rule.apply(distinguished)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"no rule of ssl.principal.mapping.rules matches {distinguished!r}; add DEFAULT")


def parse_mapping_rules(text: str) -> SslPrincipalMapper:
    """Raises UserError that says which rule is wrong."""
    rules: list[_Rule] = []
    position = 0
    while position < len(text.rstrip()):
        found = _RULE.match(text, position)
        if found is None:
            raise UserError(
                f"ssl.principal.mapping.rules: {text[position:].strip()!r} does not begin with a rule; "
                "write RULE:pattern/replacement/ (with L or U after it), or DEFAULT"
            )
        position = found.end()
        if found["default"]:
            rules.append(_Rule(None, "", ""))
            continue
        try:
            pattern = re.compile(found["pattern"])
        except re.error as problem:
            raise UserError(f"ssl.principal.mapping.rules: {found['pattern']!r} is no pattern ({problem})") from problem
        groups = [int(each) for each in _REFERENCE.findall(found["replacement"])]
        if any(group > pattern.groups for group in groups):
            raise UserError(f"ssl.principal.mapping.rules: {found['pattern']!r} has fewer groups than are replaced")
        rules.append(_Rule(pattern, found["replacement"], found["case"]))
    return SslPrincipalMapper(rules or [_Rule(None, "", "")])
