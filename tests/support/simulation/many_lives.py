"""Many seeds of one workload, on every core, and over several runs: each goes on where the last one ended.

    PYTHONPATH=src:tests .venv/bin/python -m support.simulation.many_lives test_replication --until 100000 --minutes 60

What was run is in build/simulation/<workload>.jsonl, one line for each block of seeds:

    {"first": 40, "count": 20, "code": "3f0c…", "compiled": true, "cpu_s": 8.1, "failed": {"47": "seed 47 failed: …"}}

`code` is a digest of the sources, so that it can be told how many seeds the present ones have lived through. A block
that was not finished is run again, and so is a seed that failed with other sources. Without the file everything begins
anew.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from braidlog.core.compilation import is_compiled

ROOT: Final = Path(__file__).parents[3]
NOTES: Final = ROOT / "build" / "simulation"
SOURCES: Final = ("src/braidlog", "tests/simulation", "tests/support/simulation")
# Seeds that a process runs before it says what came of them.
BLOCK: Final = 20


class Block(NamedTuple):
    """What came of the seeds from `first` on."""

    first: int
    count: int
    code: str
    compiled: bool
    cpu_s: float
    failed: dict[str, str]


class Progress:
    """The blocks that were run, in a file that grows by a line for each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.blocks: list[Block] = []
        if path.exists():
            # A line that a run was killed in the midst of has no end.
            lines = path.read_text().splitlines(keepends=True)
            self.blocks = [Block(**json.loads(line)) for line in lines if line.endswith("\n")]
            whole = sum(len(line.encode()) for line in lines if line.endswith("\n"))
            os.truncate(path, whole)

    def add(self, block: Block) -> None:
        self.blocks.append(block)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(block._asdict()) + "\n")

    def missing(self, until: int, block: int = BLOCK) -> Iterator[range]:
        """Seeds below `until` that were not run yet, in blocks; before them those that failed with other code."""
        code = digest_of_code()
        mended = [seed for seed, last in self._last_runs().items() if str(seed) in last.failed and last.code != code]
        yield from (range(seed, seed + 1) for seed in sorted(mended))
        run = self._last_runs()
        rest = [seed for seed in range(until) if seed not in run]
        while rest:
            first = rest[0]
            count = next((n for n, seed in enumerate(rest[:block]) if seed != first + n), min(block, len(rest)))
            yield range(first, first + count)
            rest = rest[count:]

    def _last_runs(self) -> dict[int, Block]:
        """Every seed that was run, with the block that it was in the last time."""
        return {seed: each for each in self.blocks for seed in range(each.first, each.first + each.count)}

    @property
    def seeds(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def failed(self) -> dict[str, str]:
        """What seeds failed with that failed the last time."""
        last_runs = self._last_runs().items()
        return {str(seed): last.failed[str(seed)] for seed, last in last_runs if str(seed) in last.failed}

    def __str__(self) -> str:
        code = digest_of_code()
        present = sum(block.count for block in self.blocks if block.code == code)
        spent = sum(block.cpu_s for block in self.blocks) / max(self.seeds, 1)
        return (
            f"{self.seeds} seeds run, {present} of them with the present code, {len(self.failed)} failed"
            f" ({', '.join(self.failed) or 'none'}); {spent:.2f} CPU seconds each"
        )


def digest_of_code() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def live(module: str, seeds: Sequence[int], code: str) -> Block:
    """The lives of these seeds, as `make test` has them.

    In a process that begins with all modules loaded, looks for no garbage and ends with all that the lives leave: they
    leave some megabytes each, and what compiled objects keep alive no collector would find.
    """
    _load(module)
    forking = multiprocessing.get_context("fork")
    receiver, sender = forking.Pipe(duplex=False)
    process = forking.Process(target=_live_and_tell, args=(sender, module, seeds, code))
    process.start()
    sender.close()
    with receiver:
        try:
            block: Block = receiver.recv()
        except EOFError:
            process.join()
            raise RuntimeError(f"the process of {seeds} ended with {process.exitcode}") from None
    process.join()
    return block


@cache
def _load(module: str) -> None:
    """Some modules are imported only by what lives: one life that is not counted, which may fail as any other."""
    lives = importlib.import_module(module).LIVES
    with suppress(AssertionError):
        lives.live(0, lives.steps)


def _live_and_tell(sender: Connection, module: str, seeds: Sequence[int], code: str) -> None:
    gc.disable()
    lives = importlib.import_module(module).LIVES
    began = time.process_time()
    failed: dict[str, str] = {}
    for seed in seeds:
        try:
            lives.live(seed, lives.steps)
        except Exception as problem:
            failed[str(seed)] = str(problem)
    sender.send(Block(seeds[0], len(seeds), code, is_compiled(), round(time.process_time() - began, 2), failed))


def run(
    module: str, progress: Progress, until: int, minutes: float, block: int = BLOCK, cores: int | None = None
) -> None:
    """All seeds below `until` that were not run yet, or as many as there is time for."""
    ends = time.monotonic() + 60 * minutes
    code = digest_of_code()
    cores = cores or os.cpu_count() or 1
    missing = progress.missing(until, block)
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        running: set[Future[Block]] = set()
        while True:
            while len(running) < cores and time.monotonic() < ends and (seeds := next(missing, None)) is not None:
                running.add(pool.submit(live, module, seeds, code))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                progress.add(each.result())


def main() -> None:
    parser = argparse.ArgumentParser(description="run seeds of a simulation that were not run yet")
    parser.add_argument("workload", help="a module of tests/simulation, such as test_replication")
    parser.add_argument("--until", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--cores", type=int, help="processes to run them in (default: one for each core)")
    arguments = parser.parse_args()
    progress = Progress(NOTES / f"{arguments.workload}.jsonl")
    run(f"simulation.{arguments.workload}", progress, arguments.until, arguments.minutes, cores=arguments.cores)
    print(progress)
    for problem in progress.failed.values():
        print(problem.partition("\nit ended with:")[0])
    raise SystemExit(1 if progress.failed else 0)


if __name__ == "__main__":
    main()
