"""`python -m bench.render RESULT.json [--into docs/BENCHMARKS.md]`: the tables of a result, printed or put in place."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.report import TITLES, blocks, fill


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.render", description=__doc__)
    parser.add_argument("result", type=Path, help="a file that `python -m bench` wrote")
    parser.add_argument("--into", type=Path, help="fill the marked parts of this document")
    parser.add_argument("--only", default="", help="comma-separated parts to fill; the others stay as they are")
    options = parser.parse_args()
    parts = blocks(json.loads(options.result.read_text()))
    if options.into:
        options.into.write_text(
            fill(options.into.read_text(), parts, only=[name for name in options.only.split(",") if name])
        )
        return
    for name, part in parts.items():
        print(f"\n## {TITLES.get(name, name.capitalize())}\n\n{part}")


if __name__ == "__main__":
    main()
