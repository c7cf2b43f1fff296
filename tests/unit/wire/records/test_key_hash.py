"""Keys meet where the Java client sends them."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import braidlog
from braidlog.wire.records import key_hash
from braidlog.wire.records.key_hash import partition_for_key

# (key, hash as Java's signed int, partition of 7), printed by Utils.murmur2 and toPositive of kafka-clients 3.9.1.
TEXTS = [
    ("21", -973932308, 3),
    ("foobar", -790332482, 0),
    ("a-little-bit-long-string", -985981536, 1),
    ("a-little-bit-longer-string", -1486304829, 0),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 3),
    ("abc", 479470107, 4),
    ("kafka", -798503068, 3),
    ("ключ", 2122343024, 4),
    ("鍵", 1131375336, 0),
]
# The same for the first so many of the bytes 251 + 37 * i (mod 256): every remainder by four, high bits set.
LENGTHS = [
    (0, 275646681, 2),
    (1, -1945629538, 3),
    (2, -409186209, 4),
    (3, 973507159, 2),
    (4, -533507677, 6),
    (5, 3043646, 4),
    (6, 1783619164, 5),
    (7, 852756944, 4),
    (8, 427200534, 5),
    (9, -345342740, 1),
    (15, -233135557, 5),
    (16, -1760811250, 0),
    (17, 1760188656, 2),
    (31, -2141676972, 1),
    (40, 2107081336, 3),
]
BYTES = bytes((251 + 37 * index) % 256 for index in range(40))


def murmur2(key: bytes) -> int:
    return int(key_hash.murmur2(key, 0, len(key)))


@pytest.mark.parametrize(
    ("key", "signed", "partition"),
    [(text.encode(), signed, partition) for text, signed, partition in TEXTS]
    + [(BYTES[:length], signed, partition) for length, signed, partition in LENGTHS],
)
def test_keys_hash_as_in_java(key: bytes, signed: int, partition: int) -> None:
    assert murmur2(key) == signed % (1 << 32)
    assert partition_for_key(key, 7) == partition


def uncompiled() -> ModuleType:
    """The module from its source, also where the tests run with a compiled one."""
    source = Path(braidlog.__file__).parent / "wire" / "records" / "key_hash.py"
    loader = SourceFileLoader("uncompiled_key_hash", str(source))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


UNCOMPILED = uncompiled()


@given(st.binary(max_size=70), st.integers(1, 100_000))
def test_compiled_and_not_agree(key: bytes, partitions: int) -> None:
    assert murmur2(key) == UNCOMPILED.murmur2(key, 0, len(key))
    chosen = partition_for_key(key, partitions)
    assert chosen == UNCOMPILED.partition_for_key(key, partitions)
    assert 0 <= chosen < partitions


@given(st.binary(min_size=4, max_size=40))
def test_every_byte_counts(key: bytes) -> None:
    """Murmur2 is a bijection of each word, so that one changed byte always changes the hash."""
    for at in range(len(key)):
        changed = bytearray(key)
        changed[at] ^= 0x80
        assert murmur2(bytes(changed)) != murmur2(key)
