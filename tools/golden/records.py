"""`python -m tools.golden.records` asks Kafka's own record classes (Records.java) and rewrites the golden file.

Needs Java 17; Kafka's jars come from the cache or Maven Central.
"""

from __future__ import annotations

import lzma
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.peers.kafka import kafka_libs
from tools.peers.maven import PeerMissing

SOURCE = Path(__file__).parent / "Records.java"
GOLDEN = Path(__file__).parent.parent.parent / "tests" / "unit" / "wire" / "records" / "golden" / "records.txt.xz"


def run(arguments: Sequence[str] = (), text: str = "") -> str:
    """What Records.java prints; raises PeerMissing when there is no Java or no Kafka."""
    command = ["java", "-cp", f"{kafka_libs()}/*", str(SOURCE), *arguments]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return done.stdout


def read_by_kafka(batches: Sequence[bytes]) -> list[str]:
    """The records that kafka-clients finds in each of the byte strings, one line of the golden notation each."""
    return run(["read"], "".join(f"{batch.hex()}\n" for batch in batches)).splitlines()


def main() -> None:
    try:
        text = run()
    except PeerMissing as missing:
        sys.exit(f"{missing}; keep the committed file")
    GOLDEN.write_bytes(lzma.compress(text.encode(), preset=9))
    print(f"{len(text.splitlines())} cases, {GOLDEN.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
