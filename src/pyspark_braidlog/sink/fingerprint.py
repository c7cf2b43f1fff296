"""What a task wrote, in a few numbers: the same for the same rows in any order, however they are cut into batches.

    rows, bytes of keys, bytes of values, and the sum of a hash of every row's key and value

Shuffles deliver a task's rows in another order each time, so that nothing here may depend on it. Rows are hashed eight
bytes at a time, many rows at once; it guards against accidents, not against a search for collisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

_WORD: Final = 8
# Of longer ones a checksum each costs less than so many words.
_LONG: Final = 512
_WHOLE: Final = (1 << 64) - 1
_LAID_OUT: Final = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = np.uint64(0xBF58476D1CE4E5B9)
_STIR: Final = np.uint64(0x94D049BB133111EB)
_NULL: Final = np.uint64(0xD6E8FEB86659FD93)
_FOLD: Final = np.uint64(29)
_TAILS: Final = np.array([(1 << (8 * count)) - 1 for count in range(_WORD)], dtype=np.uint64)

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    rows: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    checksum: int = 0

    def with_rows(self, keys: pa.Array | None, values: pa.Array) -> Fingerprint:
        """And these rows too; arrays of binary or text, `keys` none where records have none."""
        count = len(values)
        if count == 0:
            return self
        hashes, value_bytes = _hashes(values)
        key_bytes = 0
        if keys is None:
            hashes = _mixed(hashes, np.full(count, _NULL, np.uint64))
        else:
            of_keys, key_bytes = _hashes(keys)
            hashes = _mixed(hashes * _STIR, of_keys)
        total = int(np.add.reduce(hashes, dtype=np.uint64))
        return Fingerprint(
            self.rows + count,
            self.key_bytes + key_bytes,
            self.value_bytes + value_bytes,
            (self.checksum + total) & _WHOLE,
        )


def _hashes(array: pa.Array) -> tuple[Hashes, int]:
    """(a hash of each element, the bytes of all)"""
    if array.type not in _LAID_OUT:
        # Views, fixed sizes, dictionaries: the same bytes, laid out otherwise.
        array = array.cast(pa.large_binary())
    places, data = _places(array)
    starts, lengths = places[:-1], np.diff(places)
    nulls = np.asarray(array.is_null()) if array.null_count else None
    if nulls is not None:
        # What lies under a null has no meaning, and need not be zero.
        lengths[nulls] = 0
    hashes = lengths.astype(np.uint64) * _SPREAD
    long = lengths > _LONG
    if long.any():
        ends = starts + lengths
        sums = [crc32c(data[start:end]) for start, end in zip(starts[long].tolist(), ends[long].tolist(), strict=True)]
        hashes[long] ^= np.array(sums, np.uint64) * _STIR
        short = np.flatnonzero(~long)
        hashes[short] = _of_words(data, starts[short], lengths[short], hashes[short])
    else:
        hashes = _of_words(data, starts, lengths, hashes)
    if nulls is not None:
        hashes[nulls] = _NULL
    return hashes, int(lengths.sum())


def _places(array: pa.Array) -> tuple[Places, memoryview]:
    """(where each element begins, and the last ends; the bytes)"""
    wide = array.type in (pa.large_binary(), pa.large_string())
    _, starts, data = array.buffers()
    places = np.frombuffer(starts, np.int64 if wide else np.int32, len(array) + 1, array.offset * (8 if wide else 4))
    return places.astype(np.int64), memoryview(b"" if data is None else data).cast("B")


def _of_words(data: memoryview, starts: Places, lengths: Places, hashes: Hashes) -> Hashes:
    """Longest first, so that those which still have a word are the first so many."""
    words = lengths // _WORD
    most = int(words.max(initial=0))
    order: Any = slice(None)
    if most > 0 and int(words.min()) != most:
        order = np.argsort((most - words).astype(np.uint16), kind="stable")
    starts, words, sorted_hashes = starts[order], words[order], hashes[order]
    if most > 0:
        # A word may begin at any byte.
        at = np.ndarray((len(data) - _WORD + 1,), np.dtype("<u8"), data, 0, (1,))
        remaining = len(starts) - np.cumsum(np.bincount(words, minlength=most + 1))
        for word in range(most):
            first = int(remaining[word])
            sorted_hashes[:first] = _mixed(sorted_hashes[:first], at[starts[:first] + word * _WORD])
    sorted_hashes = _mixed(sorted_hashes, _tails(data, starts + words * _WORD, lengths[order] % _WORD))
    hashes[order] = sorted_hashes
    return hashes


def _tails(data: memoryview, starts: Places, lengths: Places) -> Hashes:
    """What is left after the last whole word, as a number."""
    padded = np.zeros(len(starts), np.uint64)
    whole = starts + _WORD <= len(data)
    if whole.any():
        at = np.ndarray((len(data) - _WORD + 1,), np.dtype("<u8"), data, 0, (1,))
        padded[whole] = at[starts[whole]]
    # At most the last few rows of the buffer.
    for row in np.flatnonzero(~whole).tolist():
        padded[row] = np.uint64(int.from_bytes(data[starts[row] : starts[row] + lengths[row]], "little"))
    return padded & _TAILS[lengths]


def _mixed(hashes: Hashes, words: Hashes) -> Hashes:
    mixed = (hashes ^ words) * _MIX
    return mixed ^ (mixed >> _FOLD)
