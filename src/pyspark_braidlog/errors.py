"""What went wrong, in one sentence: our own error found in what Spark makes of it, without Java's stack trace.

Spark runs a source and a sink in processes of its own, and hands their Python errors over as text:

    [STREAM_FAILED] Query [id = …] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when
    Python streaming data source perform initialOffset: Traceback (most recent call last):
      File …
    pyspark_braidlog.source.offset_reader.MissingTopics: topic nope does not exist at …; create it first
     SQLSTATE: 38000 SQLSTATE: XXKST
    === Streaming Query ===
    …
"""

from __future__ import annotations

import re
import sys
from typing import Final

from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError
from pyspark_braidlog.session import workers_python

_TRACEBACK: Final = "Traceback (most recent call last):"
# The line that ends a Python traceback: the class, and what it says.
_RAISED: Final = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*(?:\.[A-Z]\w*|Error|Exception|Interrupt)): (?P<text>.+)$", re.M)
_OURS: Final = re.compile(r"^(?:pyspark_)?braidlog\.[\w.]+: (?P<text>.+)$", re.M)
_CLASS: Final = re.compile(r"^\s*\[[A-Z][A-Z0-9_.]*\]\s*")
_QUERY: Final = re.compile(r"Query [^\[\n]*\[id = .*?\] terminated with exception: ", re.S)
# From here on it is no longer about what is wrong.
_END: Final = re.compile(r"\s*(?:SQLSTATE:|=== |JVM stacktrace|Driver stacktrace|\n\s*at [a-z][\w.$]+\(|\n\s*\n|;\n)")
_NOT_FOUND: Final = "Failed to find the data source: braidlog"
# What Spark says without telling a user of ours what to write instead.
_ADVICE: Final = {
    "checkpointLocation must be specified": (
        "the query has no place for its checkpoint: give the option checkpointLocation, or a queryName and "
        "--checkpoints DIR"
    ),
    "braidlog does not support Update mode": (
        "Spark keeps output mode update from Python data sources: write .foreachBatch(topic_sink(options)) instead of "
        '.format("braidlog"), after `from pyspark_braidlog.pipeline import topic_sink`'
    ),
    " is not supported in Real-time Mode": (
        "Spark keeps real-time mode from Python data sources: use .trigger(processingTime='0 seconds'), which is the "
        "default"
    ),
    'The data source "braidlog" cannot be written in the': (
        'a topic can only be appended to: add .mode("append") to the write (Spark keeps its default, errorifexists, '
        "from Python data sources)"
    ),
}


def clear_error(problem: BaseException) -> str:
    """One line for a person; for unexpected errors also their class."""
    if isinstance(problem, ProtocolError):
        return _one_line(f"{problem.message or 'the broker refused'} [{problem.name}]")
    if isinstance(problem, BraidlogError):
        return _one_line(str(problem))
    text = str(problem)
    if not type(problem).__module__.startswith(("pyspark", "py4j", "grpc")) and _TRACEBACK not in text:
        return _one_line(f"{type(problem).__name__}: {text}" if text else type(problem).__name__)
    return clear_text(text) or type(problem).__name__


def clear_text(text: str) -> str:
    """The same of a message as Spark prints it."""
    ours = list(_OURS.finditer(text))
    if ours:
        return _sentence(ours[-1]["text"])
    if _TRACEBACK in text:
        raised = list(_RAISED.finditer(text, text.index(_TRACEBACK)))
        # What Spark itself raises at the end of a traceback is Spark's message again, and more of it.
        if raised and raised[-1]["kind"].startswith("pyspark.errors."):
            return _spark_sentence(text[raised[-1].start("text") :])
        if raised:
            kind = raised[-1]["kind"].rpartition(".")[2]
            return _sentence(f"{kind}: {raised[-1]['text']}")
    return _spark_sentence(text)


def _spark_sentence(text: str) -> str:
    for said, advice in _ADVICE.items():
        if said in text:
            return advice
    if _NOT_FOUND in text:
        other = workers_python()
        return (
            f"Spark's workers do not have braidlog: they run {other or 'another Python'}, and this program "
            f"{sys.executable}; set PYSPARK_PYTHON to that one before the session is made, or make the session with "
            "pyspark_braidlog.session.spark_session (on a cluster install 'braidlog[spark]' on every machine)"
        )
    text = _CLASS.sub("", text.strip())
    text = _QUERY.sub("", text)
    return _sentence(_CLASS.sub("", text))


def _sentence(text: str) -> str:
    end = _END.search(text)
    return _one_line(text[: end.start()] if end and end.start() else text)


def _one_line(text: str) -> str:
    return " ".join(text.split())
