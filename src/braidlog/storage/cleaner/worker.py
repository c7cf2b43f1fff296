"""The cleaner's worker process: a request as a line of JSON on stdin, its result as a line of JSON on stdout."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
from typing import Final, TextIO

from braidlog.core.errors import CorruptLogError
from braidlog.storage.cleaner.cleaning_request import CleaningRequest
from braidlog.storage.cleaner.pass_runner import InlinePassRunner
from braidlog.storage.files import Files, OsFiles

# Compaction can wait, producers and consumers cannot.
_NICENESS: Final = 10


def serve(requests: TextIO, results: TextIO, files: Files) -> None:
    """Until the broker closes the pipe, which it also does by dying."""
    passes = InlinePassRunner(files)
    for line in requests:
        results.write(handle_request(line, passes) + "\n")
        results.flush()


def handle_request(line: str, passes: InlinePassRunner) -> str:
    try:
        return passes.run(CleaningRequest.from_json(line), lambda: False).to_json()
    except CorruptLogError as problem:
        return json.dumps({"error": "corrupt", "message": str(problem)})
    except OSError as problem:
        return json.dumps({"error": "os", "errno": problem.errno, "message": str(problem)})
    except Exception as problem:
        return json.dumps({"error": "bug", "message": f"{type(problem).__name__}: {problem}"})


def end_with_the_broker(pipe: int) -> None:
    """A pass whose broker died must not go on: the next broker's worker writes files of the same names."""
    hang_up = select.poll()
    # Without any event it still reports that the other end was closed.
    hang_up.register(pipe, 0)
    hang_up.poll()
    os._exit(1)


def main() -> None:
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    watch = threading.Thread(target=end_with_the_broker, args=(sys.stdin.fileno(),), name="broker watch", daemon=True)
    watch.start()
    serve(sys.stdin, sys.stdout, OsFiles())


if __name__ == "__main__":
    main()
