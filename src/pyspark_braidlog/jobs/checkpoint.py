"""A streaming query's checkpoint, as Spark 4 writes it, read without Spark.

```
<checkpoint>/
  metadata         {"id": "<query id>"}
  offsets/<batch>  v1
                   {"batchWatermarkMs": …, "batchTimestampMs": …, "conf": {…}}
                   one line a source: where the batch ends, "-" for a source that has nothing yet
                   (v2, where sources have names: a line is <name>:<where the batch ends>)
  commits/<batch>  v1
                   {"nextBatchWatermarkMs": …}
  state/           of queries that keep state, by operator and partition
```

A batch is written to offsets/ before it runs and to commits/ when it is done. Spark removes the old ones. What our
source writes for a batch is described in `pyspark_braidlog.source.stream_offset`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

_UNNAMED, _NAMED = "v1", "v2"
_NOTHING: Final = "-"
_IDS: Final = "@ids"
_INITIAL: Final = "@initial"
# A project's checkpoints lie so deep at most.
_DEPTH: Final = 10

Positions = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where one source of a query stands; `positions` is None of a source that does not read topics."""

    text: str
    positions: Positions | None
    ids: dict[str, str]
    # Of `readStream.name(…)`.
    name: str | None = None

    @property
    def is_ours(self) -> bool:
        """Whether our source wrote it: Spark's own Kafka connector writes no ids, and no spaces."""
        return self.positions is not None and (bool(self.ids) or '": ' in self.text)


@dataclass(frozen=True, slots=True)
class Batch:
    number: int
    version: str
    metadata: dict[str, Any]
    sources: tuple[SourcePosition, ...]

    @property
    def watermark_ms(self) -> int:
        return int(self.metadata.get("batchWatermarkMs", 0))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is written down; `planned` is the newest batch that was begun, `done` the newest that was finished."""

    path: Path
    query_id: str
    planned: Batch | None
    done: Batch | None
    # When the newest batch was done, by the clock of the file system; None before the first.
    done_at_s: float | None
    has_state: bool

    @property
    def positions(self) -> Positions:
        """The next offset to be read that counts as done, of all sources; the lesser where two read the same."""
        found: Positions = {}
        for positions in self.by_source().values():
            _merge(found, positions)
        return found

    def by_source(self) -> dict[str | None, Positions]:
        """The same by the name of the source, in order; those without one together."""
        found: dict[str | None, Positions] = {}
        for source in self._standing():
            # Where not a batch is done, the stream stands where the first begins.
            positions = beginning(source) if self.done is None else source.positions
            if positions:
                _merge(found.setdefault(source.name, {}), positions)
        return dict(sorted(found.items(), key=lambda item: item[0] or ""))

    def _standing(self) -> tuple[SourcePosition, ...]:
        batch = self.done or self.planned
        return batch.sources if batch else ()


def _merge(found: Positions, more: Mapping[TopicPartition, int]) -> None:
    for place, offset in more.items():
        found[place] = min(offset, found.get(place, offset))


def beginning(source: SourcePosition) -> Positions:
    """Where the batch begins that ends here, as far as it says so."""
    written = json.loads(source.text).get(_INITIAL) if source.is_ours else None
    return _offsets(written) if isinstance(written, dict) else {}


def find_checkpoints(path: Path) -> list[Path]:
    """The checkpoint at `path`, or all below it."""
    if not path.exists():
        raise UserError(f"{path} does not exist; give a query's checkpoint, or a directory that has some below it")
    found = list(_below(path, _DEPTH))
    if not found:
        raise UserError(
            f"{path} is no checkpoint of a streaming query and has none below it: a checkpoint has a file `metadata` "
            "and a directory `offsets`"
        )
    return found


def _below(path: Path, depth: int) -> Iterator[Path]:
    if (path / "metadata").is_file() and (path / "offsets").is_dir():
        yield path
    elif depth and path.is_dir():
        for each in sorted(path.iterdir()):
            if each.is_dir() and not each.is_symlink() and not each.name.startswith("."):
                yield from _below(each, depth - 1)


def read_checkpoint(path: Path) -> Checkpoint:
    try:
        query_id = str(json.loads((path / "metadata").read_text(encoding="utf-8"))["id"])
    except FileNotFoundError:
        raise UserError(f"{path} is no checkpoint of a streaming query: it has no file `metadata`") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path / 'metadata'} does not hold a query's id; is this a checkpoint of Spark?") from None
    planned = batch_numbers(path / "offsets")
    done = [number for number in batch_numbers(path / "commits") if number in planned]
    last_commit = path / "commits" / str(done[-1]) if done else None
    return Checkpoint(
        path=path,
        query_id=query_id,
        planned=read_batch(path, planned[-1]) if planned else None,
        done=read_batch(path, done[-1]) if done else None,
        done_at_s=last_commit.stat().st_mtime if last_commit else None,
        has_state=any((path / "state").glob("*/*")),
    )


def batch_numbers(log: Path) -> list[int]:
    """Batches of offsets/ or commits/, in order; compacted and temporary files have other names."""
    if not log.is_dir():
        return []
    return sorted(int(each.name) for each in log.iterdir() if each.name.isascii() and each.name.isdecimal())


def read_batch(path: Path, number: int) -> Batch:
    file = path / "offsets" / str(number)
    lines = file.read_text(encoding="utf-8").split("\n")
    version = lines[0].strip()
    if version not in (_UNNAMED, _NAMED):
        raise UserError(
            f"{file} begins with {lines[0][:20]!r}: offset logs of versions {_UNNAMED} and {_NAMED} are understood, as "
            "Spark 4.3 writes them"
        )
    try:
        metadata = json.loads(lines[1]) if len(lines) > 1 and lines[1].strip() else {}
        sources = tuple(_named(line) if version == _NAMED else read_source(line) for line in lines[2:] if line.strip())
    except ValueError as problem:
        raise UserError(f"{file} is cut short or damaged: {problem}") from None
    return Batch(number, version, metadata, sources)


def _named(line: str) -> SourcePosition:
    name, colon, text = line.partition(":")
    if not colon:
        raise ValueError(f"there is no name before {line[:20]!r}")
    return read_source(text, name)


def read_source(line: str, name: str | None = None) -> SourcePosition:
    """A source's line; positions in topics are found in ours and in those of Spark's Kafka connector."""
    if line.strip() == _NOTHING:
        return SourcePosition(_NOTHING, None, {}, name)
    written = json.loads(line)
    if not isinstance(written, dict):
        return SourcePosition(line, None, {}, name)
    ids = written.get(_IDS, {})
    try:
        positions = _offsets({key: each for key, each in written.items() if not key.startswith("@")})
    except (AttributeError, TypeError, ValueError):
        return SourcePosition(line, None, {}, name)
    if not positions:
        return SourcePosition(line, None, {}, name)
    return SourcePosition(line, positions, {str(topic): str(each) for topic, each in ids.items()}, name)


def written_source(source: SourcePosition, positions: Mapping[TopicPartition, int], *, begins: bool = False) -> str:
    """The line of a source that stands at `positions`; `begins` where the stream shall begin there, with no batch yet.

    Keys are in the order in which our source writes them.
    """
    by_topic: dict[str, dict[str, int]] = {}
    for place in sorted(positions):
        by_topic.setdefault(place.topic, {})[str(place.partition)] = positions[place]
    if not source.is_ours:
        return with_name(source, json.dumps(by_topic, separators=(",", ":")))
    ids = {topic: source.ids[topic] for topic in sorted(source.ids) if topic in by_topic}
    offset = {**({_IDS: ids} if ids else {}), **({_INITIAL: by_topic} if begins else {}), **by_topic}
    return with_name(source, json.dumps(offset))


def with_name(source: SourcePosition, offset: str) -> str:
    """The line of the source's log."""
    return offset if source.name is None else f"{source.name}:{offset}"


def _offsets(written: Mapping[str, Mapping[str, int]]) -> Positions:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in written.items()
        for partition, offset in partitions.items()
    }
