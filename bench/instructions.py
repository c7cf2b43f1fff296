"""`python -m bench.instructions --against CHECKOUT`: instructions a request of two checkouts, counted by callgrind.

A machine whose other tenants take turns with it measures no difference of two percent in time. The count of
instructions that the broker's process itself executes hardly changes from run to run (the kernel's are not in it);
it is taken from a running broker, after a warm-up, over a load that counts its requests.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench import programs
from bench.brokers import Braidlog, topic
from bench.measures import BEFORE, BRAIDLOG

PARTITIONS = 4
# Connections and requests in flight on each.
SHAPES = ((1, 1), (50, 1), (10, 5))
RECORDS = 100
# Under callgrind a broker is some fifty times slower, and on a busy machine it waits for its turn.
PATIENCE_MS = 60_000


class _Counted(Braidlog):
    """A broker under callgrind, which writes its counts where it is told to."""

    def __init__(self, place: Path, checkout: Path | None) -> None:
        super().__init__(place / "data", {"log.retention.check.interval.ms": "3600000"})
        self.counts = place / "counts"
        if checkout is not None:
            self.sources = checkout / "src"

    def _command(self) -> list[str]:
        return [
            *("valgrind", "--tool=callgrind", f"--callgrind-out-file={self.counts}", "--quiet"),
            *(sys.executable, *super()._command()),
        ]

    def zero(self) -> None:
        self._control("--zero")

    def executed(self) -> int:
        """Instructions since `zero`."""
        before = set(self.counts.parent.glob("counts.*"))
        self._control("--dump")
        (written,) = set(self.counts.parent.glob("counts.*")) - before
        total = re.search(r"^(?:totals|summary): (\d+)", written.read_text(errors="replace"), re.MULTILINE)
        if total is None:
            raise SystemExit(f"callgrind wrote no total to {written}")
        return int(total[1])

    def _control(self, what: str) -> None:
        subprocess.run(["callgrind_control", what, str(self.pid)], check=True, capture_output=True)


def _load(broker: _Counted, mode: str, seconds: float, options: dict[str, programs.Option]) -> tuple[int, float]:
    """Instructions and requests."""
    broker.zero()
    result = programs.run("tiny", mode, seconds=seconds, **options)
    return broker.executed(), result["requests"]


def _idle(broker: _Counted, seconds: float) -> int:
    """Instructions of the broker's own jobs in as much time."""
    broker.zero()
    time.sleep(seconds)
    return broker.executed()


def count(place: Path, checkout: Path | None, seconds: float) -> dict[str, float]:
    """Instructions a request by the name of the load."""
    found: dict[str, float] = {}
    place.mkdir()
    broker = _Counted(place, checkout)
    broker.start()
    try:
        with topic(broker, "counted", PARTITIONS) as name:
            common: dict[str, programs.Option] = {"port": broker.port, "topic": name, "partitions": PARTITIONS}
            common["patience_ms"] = PATIENCE_MS
            programs.run("tiny", "produce", connections=5, seconds=seconds, **common)
            programs.run("tiny", "fetch", connections=5, seconds=seconds, records=RECORDS, **common)
            own = _idle(broker, seconds)
            print(f"  its own jobs: {own / seconds:,.0f} a second", file=sys.stderr)
            for mode in ("produce", "fetch"):
                more: dict[str, programs.Option] = {"records": RECORDS} if mode == "fetch" else {}
                for connections, in_flight in SHAPES:
                    shape: dict[str, programs.Option] = {"connections": connections, "in_flight": in_flight, **more}
                    title = f"{mode}, {connections} x {in_flight}"
                    # What a load costs once, such as its connections, is in both, and not in their difference; what
                    # the broker does by itself depends on the time, and so on what else the machine does.
                    few = _load(broker, mode, 1, {**common, **shape})
                    many = _load(broker, mode, 1 + seconds, {**common, **shape})
                    found[title] = (many[0] - few[0] - own) / (many[1] - few[1])
                    print(f"  {title}: {found[title]:,.0f} of {many[1] - few[1]:,.0f} requests", file=sys.stderr)
    finally:
        broker.kill()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__)
    parser.add_argument("--against", type=Path, required=True, help="another checkout, compiled by its tools.build")
    parser.add_argument("--seconds", type=float, default=8, help="length of each load (default 8)")
    parser.add_argument("--rounds", type=int, default=5, help="brokers of each checkout, in turns (default 5)")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed: apt-get install valgrind")
    programs.build()
    counts: dict[str, list[dict[str, float]]] = {BEFORE: [], BRAIDLOG: []}
    with tempfile.TemporaryDirectory() as place:
        for number in range(arguments.rounds):
            for name, checkout in ((BEFORE, arguments.against), (BRAIDLOG, None)):
                print(f"round {number + 1} of {arguments.rounds}: {name}", file=sys.stderr)
                counts[name].append(count(Path(place) / f"{name}-{number}", checkout, arguments.seconds))
    print(f"{'instructions a request':<24}{'before':>10}{'now':>10}{'ratio':>8}{'rounds':>16}")
    for title in counts[BEFORE][0]:
        before, now = ([each[title] for each in counts[name]] for name in (BEFORE, BRAIDLOG))
        ratios = sorted(new / old for old, new in zip(before, now, strict=True))
        middle, was = median(now), median(before)
        print(f"{title:<24}{was:>10,.0f}{middle:>10,.0f}{middle / was:>8.3f}{ratios[0]:>9.3f}–{ratios[-1]:.3f}")


if __name__ == "__main__":
    main()
