"""A task's rows that are complete are told from those that were cut."""

from __future__ import annotations

import io
import os

import pyarrow as pa
import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.sink.write_task import IncompleteInput, TaskInput, check_complete, task_input

END = b"\xff\xff\xff\xfc"


def reader(content: bytes) -> io.BufferedReader:
    """A pipe whose other end is closed."""
    there, here = os.pipe()
    os.write(here, content)
    os.close(here)
    return os.fdopen(there, "rb", 16)


@pytest.mark.parametrize("content", [END, END + b"more", END[:1]])
def test_what_follows_complete_rows_is_seen_and_left_for_spark(content: bytes) -> None:
    with reader(content) as file:
        check_complete(file)
        assert file.read() == content


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff\xff", b"\0\0\0\0"])
def test_a_closed_socket_is_no_end(content: bytes) -> None:
    with reader(content) as file, pytest.raises(IncompleteInput, match="went away before it had sent all rows"):
        check_complete(file)


def test_arrow_takes_rows_that_were_cut_for_all_of_them() -> None:
    """Why this module is needed: nothing else tells the two apart."""
    rows = pa.RecordBatch.from_pydict({"value": ["a", "b"]})
    written = io.BytesIO()
    with pa.ipc.new_stream(written, rows.schema) as stream:
        stream.write_batch(rows)
        cut = written.getvalue()
    complete = written.getvalue() + END
    assert len(cut) < len(written.getvalue())
    for content, is_complete in ((cut, False), (complete, True)):
        with reader(content) as file:
            assert list(pa.ipc.open_stream(file)) == [rows]
            if is_complete:
                check_complete(file)
                assert file.read() == END
            else:
                with pytest.raises(IncompleteInput):
                    check_complete(file)


def test_the_file_is_found_from_within_a_worker() -> None:
    def main(infile: object, outfile: object) -> TaskInput:
        return next(task_input() for _ in range(1))

    with reader(END) as file:
        assert main(file, None) is file


def test_outside_of_a_worker_exactly_once_is_refused() -> None:
    with pytest.raises(UserError, match=r"use PySpark 4\.3, or set the option delivery to at-least-once"):
        task_input()
