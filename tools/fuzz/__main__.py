"""Fuzz one parser, or all one after the other: `python -m tools.fuzz --target requests --seconds 60`.

With atheris (`pip install 'braidlog[fuzz]'`) inputs are led by the coverage of the code, which then runs uncompiled;
without it they are changed at random. What was learnt is kept in a directory outside of the tree, from which the next
run goes on. A finding is written to a file beside it; put it into `tests/fuzz/corpus` with the reason, and mend it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random

_LARGEST_INPUT = 8192
_LARGEST_RSS_MB = 1024
_LONGEST_RUN_S = 20


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.inside:
        # Before anything of braidlog is imported: what is imported later is instrumented.
        return _run_atheris(options.target, options.corpus, options.seconds)
    names = _names()
    if options.target != "all":
        if options.target not in names:
            print(f"there is no target {options.target}; there are: {' '.join(names)}", file=sys.stderr)
            return 2
        names = [options.target]
    found = 0
    for name in names:
        report = fuzz(name, options.seconds, options.corpus, guided=options.guided)
        print(report, flush=True)
        found += report.findings
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--target", default="all", help="what to fuzz (default: all, one after the other)")
    parser.add_argument("--seconds", type=int, default=60, help="how long, for each target (default: 60)")
    parser.add_argument(
        "--corpus", type=Path, default=_cache() / "fuzz", help="where inputs are kept (default: %(default)s)"
    )
    parser.add_argument(
        "--random", dest="guided", action="store_false", help="change inputs at random, also where atheris is there"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser


def _names() -> list[str]:
    from tools.fuzz.catalog import TARGETS

    return list(TARGETS)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "braidlog"


class Report:
    def __init__(self, name: str, runs: int, seconds: float, inputs: int, findings: int, details: str) -> None:
        self.name = name
        self.runs = runs
        self.seconds = seconds
        self.inputs = inputs
        self.findings = findings
        self.details = details

    def __str__(self) -> str:
        line = f"{self.name}: {self.runs} runs in {self.seconds:.0f} s, {self.inputs} inputs kept"
        return f"{line}, {self.findings} findings\n{self.details}" if self.findings else f"{line}, no findings"


def fuzz(name: str, seconds: int, corpus: Path, *, guided: bool = True) -> Report:
    place = corpus / name
    place.mkdir(parents=True, exist_ok=True)
    if guided and find_spec("atheris") is not None:
        return _guided(name, seconds, corpus)
    return _random(name, seconds, place)


# At random


def _random(name: str, seconds: int, place: Path) -> Report:
    from tools.fuzz.catalog import TARGETS
    from tools.fuzz.mutation import mutate

    target = TARGETS[name]
    seeds = [*target.seeds(), *target.kept().values(), *(path.read_bytes() for path in sorted(place.iterdir()))]
    random = Random(time.time_ns())
    began = time.monotonic()
    runs = 0
    # By where it was raised: the same mistake is met again and again.
    findings: dict[str, str] = {}
    while (took := time.monotonic() - began) < seconds:
        data = mutate(random, seeds)
        runs += 1
        try:
            target.check(data)
        except Exception as problem:
            where = f"{type(problem).__name__} {traceback.extract_tb(problem.__traceback__)[-1]}"
            if where not in findings:
                findings[where] = f"{traceback.format_exc()}kept in {_keep_finding(name, data, place)}"
    return Report(name, runs, took, len(seeds), len(findings), "\n".join(findings.values()))


def _keep_finding(name: str, data: bytes, place: Path) -> Path:
    path = place.parent / f"{name}-crash-{hashlib.sha1(data).hexdigest()}"
    path.write_bytes(data)
    return path


# Led by coverage


def _guided(name: str, seconds: int, corpus: Path) -> Report:
    """In a process of its own: libFuzzer ends the one that it runs in."""
    command = [sys.executable, "-m", "tools.fuzz", "--inside", "--target", name, "--seconds", str(seconds)]
    began = time.monotonic()
    ended = subprocess.run(
        [*command, "--corpus", str(corpus)],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "BRAIDLOG_PURE": "1"},
    )
    took = time.monotonic() - began
    output = ended.stdout + ended.stderr
    done = re.search(r"number_of_executed_units:\s*(\d+)", output) or re.search(r"Done (\d+) runs", output)
    inputs = len(list((corpus / name).iterdir()))
    details = output[output.rfind("=== Uncaught") :] if "=== Uncaught" in output else output[-3000:]
    return Report(name, int(done[1]) if done else 0, took, inputs, int(ended.returncode != 0), details)


def _run_atheris(name: str, corpus: Path, seconds: int) -> int:
    import atheris

    # Its finder of sources has to come after the one that instruments them.
    import braidlog  # noqa: F401

    with atheris.instrument_imports(include=["braidlog"]):
        from tools.fuzz.catalog import TARGETS
    target = TARGETS[name]
    place = corpus / name
    place.mkdir(parents=True, exist_ok=True)
    for seed in (*target.seeds(), *target.kept().values()):
        (place / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    arguments = [
        "fuzz",
        f"-max_total_time={seconds}",
        f"-max_len={_LARGEST_INPUT}",
        f"-rss_limit_mb={_LARGEST_RSS_MB}",
        f"-timeout={_LONGEST_RUN_S}",
        "-print_final_stats=1",
        f"-artifact_prefix={corpus}/{name}-",
        str(place),
    ]
    atheris.Setup(arguments, lambda data: target.check(bytes(data)))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
