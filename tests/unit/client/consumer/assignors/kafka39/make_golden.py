"""Groups of every shape and how kafka-clients 3.9.1 shares partitions among them; the tests of the assignors read it.

    PYTHONPATH=tests:. python tests/unit/client/consumer/assignors/kafka39/make_golden.py

A case is a line of the file for each topic and member, then what to do, then the answer.

    topic <name> <partitions> <racks of partition 0>;<of partition 1>;…    racks of one partition: a+b, or - for none
    member <id> <instance or -> <rack or -> <topics>
    assign <assignor>
    = <member>=<topic>:<partition>,… <member>=…
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from tools.peers.java import JavaPrograms
from tools.peers.kafka import kafka_libs

HERE = Path(__file__).parent
GOLDEN = HERE / "assignments.txt"
CASES = 160


def cases() -> list[str]:
    chance = random.Random(4)
    lines = []
    for number in range(CASES):
        lines += _case(chance, with_racks=number % 2 == 0)
    for name, generation, partitions in (
        ("sticky", 7, "a:0,a:2,b:1"),
        ("sticky", 1, "only:0"),
        ("cooperative-sticky", 7, "a:0"),
        ("cooperative-sticky", 300, "a:0,b:1"),
    ):
        lines.append(f"userdata {name} {generation} {partitions}")
    return lines


def _case(chance: random.Random, *, with_racks: bool) -> list[str]:
    racks = ["r1", "r2", "r3"][: chance.randint(1, 3)]
    topics = {f"t{index}": chance.choice([1, 2, 3, 4, 4, 6, 6, 7, 12]) for index in range(chance.randint(1, 5))}
    lines = []
    for topic, count in topics.items():
        if with_racks:
            each = ["+".join(chance.sample(racks, chance.randint(1, len(racks)))) for _ in range(count)]
        else:
            each = ["-"]
        lines.append(f"topic {topic} {count} {';'.join(each)}")
    known = [*topics, "missing"]
    alike = chance.random() < 0.5
    for index in chance.sample(range(20), chance.randint(1, 9)):
        instance = f"i{20 - index:02}" if chance.random() < 0.3 else "-"
        rack = chance.choice([*racks, "-"]) if with_racks else "-"
        reads = list(topics) if alike else chance.sample(known, chance.randint(1, len(known)))
        lines.append(f"member m{index:02} {instance} {rack} {','.join(reads)}")
    lines.append(f"assign {chance.choice(['range', 'range', 'roundrobin']) if not with_racks else 'range'}")
    return lines


def main() -> None:
    asked = cases()
    command = JavaPrograms(kafka_libs(), [HERE / "Assignments.java"]).command("Assignments")
    done = subprocess.run(command, input="\n".join(asked) + "\n", capture_output=True, text=True, check=True)
    answers = iter(done.stdout.splitlines())
    with GOLDEN.open("w") as file:
        for line in asked:
            file.write(line + "\n")
            if line.startswith(("assign ", "userdata ")):
                file.write(f"= {next(answers)}\n")


if __name__ == "__main__":
    main()
