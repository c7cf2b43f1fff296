"""`python -m bench.spark.render RESULT.json [--into docs/BENCHMARKS.md]`: the tables of a result."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.report import fill
from bench.spark.report import blocks


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark.render", description=__doc__)
    parser.add_argument("result", type=Path, help="a file that `python -m bench.spark` wrote")
    parser.add_argument("--into", type=Path, help="fill the parts of this document that are marked with spark:")
    options = parser.parse_args()
    parts = blocks(json.loads(options.result.read_text()))
    if options.into:
        options.into.write_text(fill(options.into.read_text(), parts, of="spark"))
        return
    for name, part in parts.items():
        print(f"\n## {name}\n\n{part}")


if __name__ == "__main__":
    main()
