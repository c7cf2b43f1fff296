"""Lines of standard input and of files as records."""

from __future__ import annotations

import fcntl
import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from braidlog.cli.interrupts import is_interruption_waiting
from braidlog.cli.records.byte_formats import BadRecord, as_it_is
from braidlog.cli.records.json_format import Parsed, record_from_json
from braidlog.core.errors import UserError
from braidlog.wire.records.reading import Record

# Read at once at most, and below which it is worth a moment to wait for more.
_BLOCK: Final = 1 << 20
_LITTLE: Final = 1 << 18
# A linger may be long, and Python goes on with a select that a signal interrupted.
_HEAR_EVERY_S: Final = 0.1
# A line without end would fill the memory; brokers take nothing near it.
_LONGEST_LINE: Final = 1 << 30

Headers = tuple[tuple[str, bytes | None], ...]


class TextLines:
    """A line is a value, or with a separator a key and a value; what equals `null` is null."""

    def __init__(
        self,
        key: bytes | None = None,
        key_separator: bytes | None = None,
        null: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        key_bytes: Callable[[bytes], bytes] = as_it_is,
        value_bytes: Callable[[bytes], bytes] = as_it_is,
    ) -> None:
        self._key_bytes = key_bytes
        self._value_bytes = value_bytes
        self.key = key
        self.separator = key_separator
        self.null = null
        self.headers = headers
        self._timestamp = timestamp

    def __call__(self, line: bytes, now_ms: int) -> Parsed:
        key, value = self.key, line
        if self.separator is not None:
            key, found, value = line.partition(self.separator)
            if not found:
                raise self.no_separator()
        timestamp = now_ms if self._timestamp is None else self._timestamp
        record = Record(
            timestamp=timestamp,
            key=None if key is None or key == self.null else self._key_bytes(key),
            value=None if value == self.null else self._value_bytes(value),
            headers=self.headers,
        )
        return Parsed(record, None)

    @property
    def is_raw(self) -> bool:
        """Whether the bytes of a line are those of its record."""
        return self._key_bytes is as_it_is and self._value_bytes is as_it_is

    def no_separator(self) -> BadRecord:
        return BadRecord(f"no {(self.separator or b'').decode(errors='replace')!r} between a key and a value")


class JsonLines:
    """A line is a JSON object; the options' headers come after its own."""

    def __init__(self, headers: Headers = (), timestamp: int | None = None) -> None:
        self._headers = headers
        self._timestamp = timestamp

    def __call__(self, line: bytes, now_ms: int) -> Parsed:
        parsed = record_from_json(line, now_ms)
        if self._timestamp is not None:
            parsed.record.timestamp = self._timestamp
        parsed.record.headers += self._headers
        return parsed


def split_lines(block: bytes, delimiter: bytes = b"\n") -> list[bytes]:
    """The lines of a block; what follows the last delimiter is one if it is not empty.

    A carriage return before a newline belongs to it; other delimiters are taken as they are.
    """
    lines = block.split(delimiter)
    rest = lines.pop()
    if delimiter == b"\n" and b"\r\n" in block:
        lines = [line.removesuffix(b"\r") for line in lines]
    if rest:
        lines.append(rest)
    return lines


class BlockReader:
    """Whole lines of a file descriptor, many at once where there are many, few where they come slowly.

    `wait` may be interrupted without loss; what `read` has taken must be used.
    """

    def __init__(self, descriptor: int, delimiter: bytes = b"\n", linger_s: float = 0.0) -> None:
        self.is_at_end = False
        self._descriptor = descriptor
        self._delimiter = delimiter
        self._linger_s = linger_s
        # The beginning of a line whose end did not come yet. The last piece has all that a delimiter may begin with.
        self._rest: list[bytes] = []
        self._rest_size = 0
        with suppress(OSError, AttributeError):
            # Fewer turns between who writes and us; nothing but a pipe on Linux takes it.
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _BLOCK)

    def wait(self) -> None:
        """Until there is something to read, or the end."""
        select.select([self._descriptor], [], [])

    def read(self) -> bytes:
        """Lines with their delimiters; nothing while there is no whole one. At the end all that is left."""
        data = self._take()
        if self.is_at_end:
            data = b"".join([*self._rest, data])
            self._rest = []
            return data
        overlap = len(self._delimiter) - 1
        if overlap and self._rest:
            last = self._rest[-1]
            self._rest[-1] = last[:-overlap]
            data = last[-overlap:] + data
        if overlap:
            # From the left, as lines are split: two newlines end "a\n\n" of "a\n\n\n", and the third begins the next.
            whole = len(data) - len(data.split(self._delimiter)[-1])
        else:
            whole = data.rfind(self._delimiter) + 1
        if whole == 0:
            self._rest.append(data)
            self._rest_size += len(data)
            if self._rest_size > _LONGEST_LINE:
                raise UserError("a line is longer than 1 GiB; end records with newlines, or say --delimiter")
            return b""
        block = b"".join([*self._rest, data[:whole]])
        self._rest = [data[whole:]] if whole < len(data) else []
        self._rest_size = len(data) - whole
        return block

    def _take(self) -> bytes:
        """What is there, and what comes within the linger while that is little."""
        descriptor = self._descriptor
        pieces = [os.read(descriptor, _BLOCK)]
        size = len(pieces[0])
        deadline = time.monotonic() + self._linger_s
        while pieces[-1] and size < _BLOCK:
            if not self._has_more(deadline if size < _LITTLE else 0.0):
                return b"".join(pieces)
            pieces.append(os.read(descriptor, _BLOCK - size))
            size += len(pieces[-1])
        self.is_at_end = not pieces[-1]
        return b"".join(pieces)

    def _has_more(self, deadline: float) -> bool:
        """Whether something comes by then; a command that is asked to end waits no longer."""
        while True:
            left = min(max(deadline - time.monotonic(), 0.0), _HEAR_EVERY_S)
            if select.select([self._descriptor], [], [], left)[0]:
                return True
            if left < _HEAR_EVERY_S or is_interruption_waiting():
                return False
