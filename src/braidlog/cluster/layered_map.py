"""An immutable mapping whose next version costs what changed, not what it holds.

    recent   what changed since the last merge; a removed key points to _GONE
    base     everything older, shared by all versions and never written again

A lookup tries `recent` first. Once `recent` outgrows its bound, one version pays for merging both into a new base:
spread over the changes before it, that is about `len(base) / bound` entries a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_GONE: Final = object()
_MERGE_ABOVE: Final = 128


class LayeredMap(Generic[K, V]):
    """Iterates the base in its order, then what was added since: the same in every process for the same changes."""

    __slots__ = ("_base", "_recent", "_size")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = dict(entries) if entries else {}
        self._recent: dict[K, Any] = {}
        self._size = len(self._base)

    def get(self, key: K) -> V | None:
        if self._recent:
            found = self._recent.get(key)
            if found is not None:
                return None if found is _GONE else found
        return self._base.get(key)

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None  # type: ignore[arg-type]

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return (entry[0] for entry in self.items())

    def values(self) -> Iterator[V]:
        return (entry[1] for entry in self.items())

    def items(self) -> Iterator[tuple[K, V]]:
        recent = self._recent
        if not recent:
            yield from self._base.items()
            return
        for key, value in self._base.items():
            current = recent.get(key, value)
            if current is not _GONE:
                yield key, current
        for key, value in recent.items():
            if value is not _GONE and key not in self._base:
                yield key, value

    def changed(self, updates: Mapping[K, V], removals: Iterable[K] = ()) -> LayeredMap[K, V]:
        """The next version; removing a key that is not there changes nothing. Values are never None."""
        recent = dict(self._recent)
        size = self._size
        for key in removals:
            if self._holds(recent, key):
                size -= 1
                recent[key] = _GONE
        for key, value in updates.items():
            if not self._holds(recent, key):
                size += 1
            recent[key] = value
        version: LayeredMap[K, V] = LayeredMap.__new__(LayeredMap)
        version._base, version._recent, version._size = self._base, recent, size
        if len(recent) > _MERGE_ABOVE:
            version._base, version._recent = dict(version.items()), {}
        return version

    def _holds(self, recent: Mapping[K, Any], key: K) -> bool:
        found = recent.get(key)
        return found is not _GONE if found is not None else key in self._base

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LayeredMap) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LayeredMap({dict(self.items())!r})"
