"""`braidlog …`: hands `serve` to its own module before anything else of the command line is imported."""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] == "serve":
        from braidlog.cli.serve import main as serve

        return serve(words[1:])
    from braidlog.cli.program import leave
    from braidlog.cli.program import main as program

    code = program(words)
    if arguments is None:
        leave(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
