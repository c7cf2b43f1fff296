"""Writing a stream from within `foreachBatch`: the way to a topic for output mode update.

Spark asks a sink's writer whether it takes updates as appends, and the writer that it makes of a Python data source
cannot say so: `format("braidlog")` has the modes append and complete alone. A function for `foreachBatch` has all.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark_braidlog.sink.options import Delivery, WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST: Final = 64


def topic_sink(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that appends each batch to topics, with the options of `format("braidlog")`.

    Rows are written exactly once, unless the option `delivery` says otherwise. The option `sinkName` is the topic's
    name by default.
    """
    given = {name.lower(): value for name, value in options.items()}
    chosen = WriteOptions.checked(given, Delivery.EXACTLY_ONCE)
    given["delivery"] = chosen.delivery.value
    given["sinkname"] = chosen.sink_name or sink_name_of(chosen.topic)

    def write(batch: DataFrame, _number: int) -> None:
        batch.write.format("braidlog").mode("append").options(**given).save()

    return write


def sink_name_of(topic: str | None) -> str:
    """Two sinks of one query have different names if their topics have."""
    if topic is None:
        return "topics"
    fitting = _UNFIT.sub("_", topic)
    if fitting == topic and len(topic) <= _LONGEST:
        return topic
    digest = f"-{zlib.crc32(topic.encode()):08x}"
    return fitting[: _LONGEST - len(digest)] + digest
