from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from braidlog.config.broker import BrokerSettings
from braidlog.logging_setup import set_up_logging


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    handlers, level = list(logging.root.handlers), logging.root.level
    flags = (logging.logThreads, logging.logProcesses, logging.logMultiprocessing, logging.raiseExceptions)
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing, logging.raiseExceptions = flags


def started(**texts: str) -> io.StringIO:
    stream = io.StringIO()
    set_up_logging(BrokerSettings({f"braidlog.log.{key}": text for key, text in texts.items()}), stream)
    return stream


def test_a_text_line_has_time_level_logger_and_message() -> None:
    stream = started()
    logging.getLogger("braidlog.x").warning("disk %s is slow", "d1")
    line = stream.getvalue()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING braidlog\.x: disk d1 is slow\n", line)


def test_processes_that_share_a_stream_name_themselves() -> None:
    lines = []
    for form in ("text", "json"):
        stream = io.StringIO()
        set_up_logging(BrokerSettings({"braidlog.log.format": form}), stream, process="worker-1")
        logging.getLogger("braidlog.x").warning("slow")
        lines.append(stream.getvalue())
    assert lines[0].endswith(" WARNING worker-1 braidlog.x: slow\n")
    assert json.loads(lines[1])["process"] == "worker-1"


def test_a_message_cannot_forge_a_line() -> None:
    stream = started()
    logging.getLogger("braidlog.x").error("client said %s", "a\n2026-01-01 INFO fine\x1b[2J\r")
    assert stream.getvalue().count("\n") == 1
    assert "a\\n2026-01-01 INFO fine\\x1b[2J\\r" in stream.getvalue()


def test_a_json_line_is_an_object() -> None:
    stream = started(format="json")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("braidlog.x").exception("failed\nbadly")
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert fields["level"] == "ERROR"
    assert fields["logger"] == "braidlog.x"
    assert fields["message"] == "failed\nbadly"
    assert "ValueError: two\nlines" in fields["exception"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields["time"])


def test_the_level_decides_what_is_written() -> None:
    stream = started(level="warning")
    logging.getLogger("braidlog.x").info("no")
    logging.getLogger("braidlog.x").warning("yes")
    assert "no" not in stream.getvalue()
    assert "yes" in stream.getvalue()


def test_setting_up_again_replaces_the_first() -> None:
    first = started()
    second = started()
    logging.getLogger("braidlog.x").warning("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1
