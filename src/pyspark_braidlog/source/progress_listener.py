"""Progress at the moment a batch is done, by way of the program that runs the query.

The source itself hears of a finished batch with the next question of Spark: at once with most triggers, an interval
later with `processingTime`, and never after the one batch of `once` or after `query.stop()`. Where that is too late:

    options = {"kafka.bootstrap.servers": …, "subscribe": "orders", "groupId": "billing"}
    spark.streams.addListener(ProgressListener(options))
    spark.readStream.format("braidlog").options(**options).load()…
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from braidlog.core.errors import UserError
from pyspark_braidlog.source.data_loss import is_chosen
from pyspark_braidlog.source.offset_committer import OffsetCommitter, group_admin, say
from pyspark_braidlog.source.offset_range import Offsets
from pyspark_braidlog.source.options import ReadOptions
from pyspark_braidlog.source.stream_offset import StreamOffset


class ProgressListener(StreamingQueryListener):
    """Commits to the group of the options where the queries stand that read what the options choose.

    With `query`, a name, only that of this query.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        query: str | None = None,
        *,
        progress: OffsetCommitter | None = None,
        tell: Callable[[str], None] = say,
    ) -> None:
        self._options = ReadOptions.for_stream(options)
        if self._options.group_id is None:
            raise UserError("the options name no group that progress could be committed to; give groupId")
        self._query = query
        self._tell = tell
        self._progress = progress or OffsetCommitter(group_admin(self._options.client), self._options.group_id)
        self._refused = False

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        if self._refused or (self._query is not None and event.progress.name != self._query):
            return
        offsets: Offsets = {}
        for source in event.progress.sources:
            offsets |= self._chosen(source.endOffset)
        try:
            self._progress.show(offsets)
        except UserError as problem:
            # No caller could do anything with it.
            self._refused = True
            self._tell(str(problem))

    def _chosen(self, text: str | None) -> Offsets:
        """Returns nothing for sources of other kinds."""
        try:
            written = json.loads(text or "null")
            found = StreamOffset.of(written).offsets if isinstance(written, dict) else {}
        except (UserError, ValueError):
            return {}
        return {place: each for place, each in found.items() if is_chosen(self._options.consumer_strategy, place)}
