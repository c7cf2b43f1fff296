"""`python -m support.attacks NAME PORT SCALE`, or `victim PORT`: one client in a process of its own.

An attack says `ready` when everything is encoded, begins when a line comes on standard input, says `landed` when it
has had its whole effect once, and ends with its counts as JSON when standard input ends.
"""

from __future__ import annotations

import json
import select
import sys

from support.attacks import victim
from support.attacks.catalog import ATTACKS
from support.attacks.sending import Control
from support.attacks.target import Target


def _stopped() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def attack(name: str, port: int, scale: float) -> None:
    target = Target(port, scale)
    sender = ATTACKS[name].prepare(target)
    target.close()
    print("ready", flush=True)
    sys.stdin.readline()
    control = Control(_stopped, lambda: print("landed", flush=True))
    sender.run(port, control)
    print(json.dumps(control.counts), flush=True)


def main() -> None:
    name, port, *rest = sys.argv[1:]
    if name == "victim":
        victim.run(int(port))
    else:
        attack(name, int(port), float(rest[0]))


if __name__ == "__main__":
    main()
