"""`python -m bench.client.render RESULT.json [--into docs/BENCHMARKS.md]`: the tables of a result."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.client.report import blocks
from bench.report import fill


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.client.render", description=__doc__)
    parser.add_argument("result", type=Path, help="a file that `python -m bench.client` wrote")
    parser.add_argument("--into", type=Path, help="fill the parts of this document that are marked with client:")
    options = parser.parse_args()
    parts = blocks(json.loads(options.result.read_text()))
    if options.into:
        options.into.write_text(fill(options.into.read_text(), parts, of="client"))
        return
    for name, part in parts.items():
        print(f"\n## {name}\n\n{part}")


if __name__ == "__main__":
    main()
