"""The broker's own log: one line an event on standard error, as text for people or as JSON for collectors.

    text   2026-01-31 12:00:00,123 INFO braidlog.server: listening on ...
    json   {"time": "2026-01-31T12:00:00.123Z", "level": "INFO", "logger": "braidlog.server", "message": "..."}

Of several processes that share a standard error each names itself: `INFO worker-1 braidlog.server: …`, and the field
`process`.

A newline within a message is escaped, so that a client's text can never pass for a line of the broker.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Final, TextIO

from braidlog.config.broker import BrokerSettings

_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F)} | {0x09: "\t", 0x0A: "\\n", 0x0D: "\\r"}


class TextFormatter(logging.Formatter):
    def __init__(self, process: str = "") -> None:
        named = f"{process} " if process else ""
        super().__init__(f"%(asctime)s %(levelname)s {named}%(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.translate(_ESCAPES)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line; a traceback is the field `exception`."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        import json

        fields: dict[str, object] = {
            "time": _utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._process:
            fields["process"] = self._process
        # What a line says, once more as values: of those that programs read, as audit lines are.
        fields.update(getattr(record, "fields", {}))
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return json.dumps(fields, ensure_ascii=False)


def _utc(seconds: float) -> str:
    whole = int(seconds)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int((seconds - whole) * 1000):03d}Z"


def set_up_logging(settings: BrokerSettings, stream: TextIO | None = None, process: str = "") -> None:
    """Write everything that `braidlog` and its libraries log to `stream` (standard error), in the chosen form.

    `process` is the name of this one where several write to the same.

    Calling it again replaces what the last call set up.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    is_json = settings.get_str("braidlog.log.format") == "json"
    handler.setFormatter(JsonFormatter(process) if is_json else TextFormatter(process))
    for old in list(logging.root.handlers):
        logging.root.removeHandler(old)
    logging.root.addHandler(handler)
    logging.root.setLevel(settings.get_str("braidlog.log.level").upper())
    # A line names its logger; the caller's file, thread and process would be looked up for nothing.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # Logging that fails (a closed pipe, a full disk) must not take a request with it.
    logging.raiseExceptions = False
