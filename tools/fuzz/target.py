"""One thing to fuzz: what it is given, and the only ways in which it may end."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
KIB = 1 << 10
MIB = 1 << 20


class TooMuchMemory(AssertionError):
    """A run took more memory than what it was given can justify."""


@dataclass(frozen=True)
class Target:
    """`run` raises nothing but `allowed`, whatever it is given; it asserts what must be true of what it accepts."""

    name: str
    run: Callable[[bytes], None]
    allowed: tuple[type[Exception], ...]
    # Sound inputs, to be changed.
    seeds: Callable[[], Sequence[bytes]]
    # Bytes that a run may take at most: so many, and so many for each byte of its input.
    fixed_bytes: int = MIB
    bytes_per_byte: int = 300

    def check(self, data: bytes) -> bool:
        """One run: whether the input was accepted. Raises whatever is a finding."""
        try:
            self.run(data)
        except self.allowed:
            return False
        return True

    def check_memory(self, data: bytes) -> bool:
        """The same, with its memory measured; tracemalloc runs already."""
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        accepted = self.check(data)
        took = tracemalloc.get_traced_memory()[1] - before
        allowed = self.fixed_bytes + self.bytes_per_byte * len(data)
        if took > allowed:
            raise TooMuchMemory(f"{self.name} took {took} bytes for {len(data)}, more than {allowed}")
        return accepted

    def kept(self) -> dict[str, bytes]:
        """The inputs of the corpus, by the reason why each is kept."""
        path = CORPUS / f"{self.name}.txt"
        return read_corpus(path) if path.exists() else {}


@cache
def read_corpus(path: Path) -> dict[str, bytes]:
    """A line is `reason: pieces`; a piece is hexadecimal, or hexadecimal and how often, as in `5b*1000`."""
    found: dict[str, bytes] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            reason, _, pieces = line.partition(": ")
            found[reason] = b"".join(_piece(piece) for piece in pieces.split())
    return found


def _piece(text: str) -> bytes:
    content, _, times = text.partition("*")
    return bytes.fromhex(content) * int(times or 1)
