"""Our error found in what Spark makes of it."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import TopicAuthorizationFailedError
from pyspark_braidlog.errors import clear_error, clear_text

STREAM = """\
[STREAM_FAILED] Query [id = 25adf979, runId = 24410802] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform initialOffset: \
Traceback (most recent call last):
  File "/x/pyspark/sql/streaming/python_streaming_source_runner.py", line 267, in main
  File "/x/pyspark_braidlog/source/offset_reader.py", line 105, in _named
    raise _absent(missing, self._servers)
pyspark_braidlog.source.offset_reader.MissingTopics: topic nope does not exist at 127.0.0.1:1; create it first
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 25adf979, runId = 24410802]
Current Committed Offsets: {}
"""
TASK = """\
[STREAM_FAILED] Query clean [id = 25adf979, runId = 24410802] terminated with exception: Job aborted due to \
stage failure: \
Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage 3.0 (TID 3) (localhost \
executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/clean.py", line 3, in parse
    return 1 / 0
           ~~^~~
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:640)
"""
CHAINED = """\
Traceback (most recent call last):
  File "/x/a.py", line 1, in <module>
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/a.py", line 3, in <module>
braidlog.core.errors.UserError: give x
"""
COLUMN = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `b` cannot be resolved. \
Did you mean one of the following? [`a`]. SQLSTATE: 42703;
'Project ['b]
+- Range (0, 1, step=1, splits=Some(2))
"""
FAILED = """\
2026-11-16 09:09:21: Flow 'x' has FAILED.
Traceback (most recent call last):
  File "/x/pyspark/pipelines/cli.py", line 450, in <module>
    main()
pyspark.errors.exceptions.connect.AnalysisException: [CANNOT_MODIFY_STATIC_CONFIG] Cannot modify the value of the \
static Spark config: "spark.sql.catalogImplementation". SQLSTATE: 46110
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (STREAM, "topic nope does not exist at 127.0.0.1:1; create it first"),
        (TASK, "ZeroDivisionError: division by zero"),
        (CHAINED, "give x"),
        (
            COLUMN,
            "A column, variable, or function parameter with name `b` cannot be resolved. "
            "Did you mean one of the following? [`a`].",
        ),
        (FAILED, 'Cannot modify the value of the static Spark config: "spark.sql.catalogImplementation".'),
        ("Job aborted.\n\tat org.apache.spark.X(Y.scala:1)", "Job aborted."),
    ],
)
def test_sentences(text: str, sentence: str) -> None:
    assert clear_text(text) == sentence
    assert clear_error(PySparkException(message=text)) == sentence


def test_errors_that_never_were_sparks() -> None:
    assert clear_error(UserError("give\n  one")) == "give one"
    assert clear_error(TopicAuthorizationFailedError("not yours")) == "not yours [TOPIC_AUTHORIZATION_FAILED]"
    assert clear_error(KeyError("x")) == "KeyError: 'x'"
    assert clear_error(ValueError()) == "ValueError"
