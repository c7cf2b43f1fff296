"""Whether there is somewhere to write to: asked by the driver before any task runs, and by tasks for topics of rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from pyspark_braidlog.sink.columns import Columns
from pyspark_braidlog.sink.options import WriteOptions
from pyspark_braidlog.source.cluster_view import ClusterView
from pyspark_braidlog.source.topics import Choice, Subscribe, SubscribePattern

# A stream asks for every batch, in processes that live as long as the query.
_STILL_TRUE_S: Final = 60.0
# Asks the cluster all the same.
_NO_TOPIC: Final = SubscribePattern("(?!)")


def _ask(options: WriteOptions, choice: Choice) -> None:
    with ClusterView(options.client) as cluster:
        cluster.topics(choice)


class Targets:
    """What was seen to be there lately."""

    def __init__(
        self, ask: Callable[[WriteOptions, Choice], None] = _ask, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._now = now
        self._seen: dict[tuple[object, ...], float] = {}

    def check(self, options: WriteOptions) -> None:
        """The cluster answers and has the topic; else raises one sentence, within some ten seconds."""
        self._look(options, [options.topic])

    def checked(
        self, options: WriteOptions, columns: Columns, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The batches; a producer would wait for a minute for a topic that does not exist."""
        for batch in batches:
            self._look(options, columns.topics(batch))
            yield batch

    def _look(self, options: WriteOptions, topics: Sequence[str | None]) -> None:
        """All that were not seen lately in one question."""
        now = self._now()
        client = tuple(sorted(options.client.items()))
        unseen = [each for each in topics if now - self._seen.get((each, client), -math.inf) >= _STILL_TRUE_S]
        if not unseen:
            return
        named = tuple(each for each in unseen if each is not None)
        self._ask(options, Subscribe(named) if named else _NO_TOPIC)
        self._seen = {each: seen for each, seen in self._seen.items() if now - seen < _STILL_TRUE_S}
        self._seen |= {(each, client): now for each in unseen}


TARGETS: Final = Targets()
