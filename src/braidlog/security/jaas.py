"""The login module of `sasl.jaas.config`, in the syntax of Java's JAAS files.

    <login module class> required|requisite|sufficient|optional  [<option>=<value>]… ;

A value is a word, or text in double or single quotes with Java's escapes; `//` and `/* */` are comments. A property
file holds one module. Values are secrets: no error quotes one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from braidlog.core.errors import UserError

PLAIN: Final = "PlainLoginModule"
SCRAM: Final = "ScramLoginModule"
OAUTHBEARER: Final = "OAuthBearerLoginModule"
KERBEROS: Final = "Krb5LoginModule"
_KNOWN: Final = (PLAIN, SCRAM, OAUTHBEARER, KERBEROS)
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
      |(?P<quoted>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      |(?P<sign>[=;])
      |(?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:([0-3]?[0-7]{1,2})|(.))", re.DOTALL)
_SIGNS: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class LoginModule(NamedTuple):
    """`name` is the class without its package."""

    name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, {', '.join(self.options)})"


def parse_jaas(text: str) -> LoginModule:
    """The one login module; raises UserError that says where the text goes wrong."""
    tokens = list(_tokens(text))
    if not tokens:
        raise _wrong("it is empty")
    if tokens[-1] != (";", True):
        raise _wrong("it has to end with a semicolon")
    if sum(token == (";", True) for token in tokens) > 1:
        raise _wrong("it names several login modules; a client has one")
    (name, _), *rest = tokens[:-1] or [("", False)]
    short = name.rpartition(".")[2]
    if short not in _KNOWN:
        raise _wrong(f"the login module has to be one of {', '.join(_KNOWN)}")
    if not rest or rest[0][0].lower() not in _FLAGS:
        raise _wrong(f"after {short} comes one of {', '.join(_FLAGS)}")
    return LoginModule(short, _options(rest[1:]))


def _options(tokens: list[tuple[str, bool]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for at in range(0, len(tokens), 3):
        key, *rest = tokens[at : at + 3]
        if key == ("=", True):
            raise _wrong("an equals sign has no option before it")
        if len(rest) != 2 or rest[0] != ("=", True) or rest[1] == ("=", True):
            raise _wrong(f'option {number_of(at)} has no value; write name="value"')
        found[key[0]] = rest[1][0]
    return found


def number_of(position: int) -> int:
    """Options are three tokens each; people count from one."""
    return position // 3 + 1


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Words and signs; the flag tells a sign from a quoted text that looks like one."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _wrong(f"a quote is not closed (character {position + 1})")
        position = found.end()
        if found["sign"]:
            yield found["sign"], True
        elif found["quoted"] is not None:
            yield _ESCAPE.sub(_unescape, found["quoted"][1:-1]), False
        elif found["word"]:
            yield found["word"], False


def _unescape(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 8))
    return _SIGNS.get(found[2], found[2])


def _wrong(problem: str) -> UserError:
    return UserError(
        f"sasl.jaas.config: {problem}; such as "
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="…";'
    )
