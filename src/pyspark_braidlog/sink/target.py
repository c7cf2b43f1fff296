"""What the driver makes sure of before any task runs: the cluster answers, and the topic is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from pyspark_braidlog.sink.options import WriteOptions
from pyspark_braidlog.source.cluster_view import ClusterView
from pyspark_braidlog.source.topics import Subscribe, SubscribePattern

# A stream asks for every batch, in a process that lives as long as the query.
_STILL_TRUE_S: Final = 60.0
# Asks the cluster all the same.
_NO_TOPIC: Final = SubscribePattern("(?!)")

_seen: dict[tuple[object, ...], float] = {}


def check_target(options: WriteOptions, now: Callable[[], float] = time.monotonic) -> None:
    """Raises one sentence within some ten seconds; topics of a column are for the tasks to find."""
    settings = tuple(sorted(options.client.items()))
    if now() - _seen.get((options.topic, settings), -_STILL_TRUE_S) < _STILL_TRUE_S:
        return
    with ClusterView(options.client) as cluster:
        cluster.topics(_NO_TOPIC if options.topic is None else Subscribe((options.topic,)))
    _seen.clear()
    _seen[options.topic, settings] = now()
