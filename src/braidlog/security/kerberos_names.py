"""Who a client is by its Kerberos principal: `primary[/instance]@REALM`, as the listener's rules change it.

    sasl.kerberos.principal.to.local.rules    DEFAULT, RULE:[n:format](pattern)s/from/to/[g][/L|/U], …

    DEFAULT     the primary, of principals in the broker's own realm
    [n:format]  of principals with n parts before the realm; in the format $0 is the realm, $1 and $2 are the parts
    (pattern)   if the whole of that matches it
    s/from/to/  what is replaced in it, once, or everywhere with g; L and U make it lower or upper case

The first rule that applies counts. A name that still has a / or @ is nobody's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from braidlog.core.errors import BraidlogError, UserError

_SETTING: Final = "sasl.kerberos.principal.to.local.rules"
_PRINCIPAL: Final = re.compile(r"(?P<primary>[^/@]+)(?:/(?P<instance>[^/@]*))?@(?P<realm>[^/@]+)")
_RULE: Final = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<parts>\d):(?P<format>[^\]]*)\](?:\((?P<pattern>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$(\d)")


class NoMatchingPrincipalRuleError(BraidlogError):
    """No rule says which user a principal is."""


class _Rule(NamedTuple):
    """`parts` is 0 for DEFAULT."""

    parts: int
    format: str = ""
    pattern: re.Pattern[str] | None = None
    replaced: re.Pattern[str] | None = None
    replacement: str = ""
    how_often: int = 1
    case: str = ""

    def apply(self, names: list[str], realm: str) -> str | None:
        """`names` has the principal's realm first."""
        if self.parts == 0:
            return names[1] if names[0] == realm else None
        if len(names) - 1 != self.parts:
            return None
        name = _PARAMETER.sub(lambda found: names[int(found[1])], self.format)
        if self.pattern is not None and not self.pattern.fullmatch(name):
            return None
        if self.replaced is not None:
            name = self.replaced.sub(
                lambda found: _PARAMETER.sub(lambda group: found[int(group[1])] or "", self.replacement),
                name,
                count=self.how_often,
            )
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class KerberosShortNamer:
    """`realm` is the broker's own."""

    def __init__(self, rules: Iterable[_Rule], realm: str) -> None:
        self._rules = tuple(rules)
        self._realm = realm

    def name_of(self, principal: str) -> str:
        """Raises NoMatchingPrincipalRuleError."""
        found = _PRINCIPAL.fullmatch(principal)
        if found is not None:
            instance = [] if found["instance"] is None else [found["instance"]]
            for rule in self._rules:
                name = rule.apply([found["realm"], found["primary"], *instance], self._realm)
                if name:
                    if "/" in name or "@" in name:
                        raise NoMatchingPrincipalRuleError(
                            f"{_SETTING} make {name!r} of {principal!r}, which is no user"
                        )
                    return name
        raise NoMatchingPrincipalRuleError(f"none of {_SETTING} applies to {principal!r}")


def realm_of(principal: str) -> str:
    """Empty where the principal names none."""
    return principal.rpartition("@")[2] if "@" in principal else ""


def parse_principal_rules(rules: Iterable[str], realm: str) -> KerberosShortNamer:
    """Raises UserError that says which rule is wrong."""
    return KerberosShortNamer([_parse(rule.strip()) for rule in rules], realm)


def _parse(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise UserError(f"{_SETTING}: {text!r} is no rule; write RULE:[1:$1](pattern)s/from/to/, or DEFAULT")
    if found["default"]:
        return _Rule(0)
    parts = int(found["parts"])
    try:
        pattern = None if found["pattern"] is None else re.compile(found["pattern"])
        replaced = None if found["from"] is None else re.compile(found["from"])
    except re.error as problem:
        raise UserError(f"{_SETTING}: {text!r} has a pattern that is none ({problem})") from problem
    replacement = found["to"] or ""
    if any(int(number) > parts for number in _PARAMETER.findall(found["format"])):
        raise UserError(f"{_SETTING}: {text!r} names a part that its principals do not have")
    if replaced is not None and any(int(number) > replaced.groups for number in _PARAMETER.findall(replacement)):
        raise UserError(f"{_SETTING}: {text!r} replaces with a group that its pattern does not have")
    return _Rule(parts, found["format"], pattern, replaced, replacement, 0 if found["all"] else 1, found["case"] or "")
