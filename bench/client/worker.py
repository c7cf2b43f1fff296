"""`python -m bench.client.worker TASK`: one measurement in a process of its own; the task and the result are JSON."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

from bench.client.rows import ARROW
from bench.client.task import Stopwatch, Task


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    if task.mode == ARROW:
        # What is wanted of it is wanted of one core; the broker may have the others.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    driver = import_module(f"bench.client.drivers.{task.client}")
    watch = Stopwatch()
    (driver.produce if task.action == "produce" else driver.consume)(task, watch)
    print(json.dumps(watch.as_json()), flush=True)


if __name__ == "__main__":
    main()
