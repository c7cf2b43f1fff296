"""Changes sound inputs by a seed: the same seed gives the same inputs on every machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

LARGEST: Final = 16_384
# Lengths, counts and numbers at their edges, as the protocol writes them.
_EDGES: Final = (
    b"\x00", b"\xff", b"\x7f", b"\x80", b"\x01",
    b"\x7f\xff", b"\xff\xff", b"\x80\x00", b"\x00\x00",
    b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\x00\x00", b"\x00\x0f\xff\xff",
    b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x10", b"\xff" * 10,
    b"\x7f" + b"\xff" * 7, b"\x80" + b"\x00" * 7,
)  # fmt: skip
# What texts are made of, and what ends them.
_WORDS: Final = (
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"=", b";", b"\\", b"\\ud800", b"\xc3\x28", b"\xed\xa0\x80", b"\0", b"\n",
    b"$1", b"$99999", b"(", b")", b"*", b"+", b"(?", b"{1000}", b"null", b"true", b"-1", b"1e999", b"NaN", b"9" * 5000,
    "²".encode(), "٣".encode(), "\U0001f600".encode(), b"%", b"%zz", b"[" * 2000, b'{"a":' * 500,
)  # fmt: skip


def mutated(seeds: Sequence[bytes], seed: str, count: int) -> Iterator[bytes]:
    """`count` inputs."""
    random = Random(seed)
    for _ in range(count):
        yield mutate(random, seeds)


def mutate(random: Random, seeds: Sequence[bytes]) -> bytes:
    if not seeds or random.random() < 0.02:
        return random.randbytes(random.randrange(200))
    content = bytearray(random.choice(seeds))
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        _change(random, content, seeds)
    return bytes(content[:LARGEST])


def _change(random: Random, content: bytearray, seeds: Sequence[bytes]) -> None:
    at = random.randrange(len(content) + 1)
    way = random.randrange(9)
    if way == 0 and content:
        content[at - 1] ^= 1 << random.randrange(8)
    elif way == 1:
        piece = random.choice(_EDGES)
        content[at : at + len(piece)] = piece
    elif way == 2:
        content[at:at] = random.choice(_WORDS)
    elif way == 3:
        piece = random.randbytes(random.randint(1, 4))
        content[at : at + len(piece)] = piece
    elif way == 4:
        del content[at : at + random.randint(1, 8)]
    elif way == 5:
        del content[at:]
    elif way == 6:
        length = random.randint(1, 40)
        content[at:at] = content[at : at + length] * random.randint(1, 4)
    elif way == 7:
        other = random.choice(seeds)
        start = random.randrange(len(other) + 1)
        content[at:] = other[start:]
    else:
        word = random.choice(_WORDS)
        content[at : at + len(word)] = word
