"""`braidlog …`: hands `serve` to its own module before anything else of the command line is imported."""

from __future__ import annotations

import io
import os
import sys

_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    try:
        _prepare_standard_streams()
        words = sys.argv[1:] if arguments is None else arguments
        if words and words[0] == "serve":
            from braidlog.cli.commands.serve import main as serve

            return serve(words[1:])
        from braidlog.cli.program import leave
        from braidlog.cli.program import main as program

        code = program(words)
        if arguments is None:
            leave(code)
        return code
    except KeyboardInterrupt:
        # While modules were imported or options read: nothing has been done yet.
        return _INTERRUPTED


def _prepare_standard_streams() -> None:
    """What was started with one of them closed would print into the first file or socket that it opens."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name, a value or a help text that the terminal cannot show is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
