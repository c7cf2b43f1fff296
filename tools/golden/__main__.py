"""`python -m tools.golden` runs Dump.java over every message of the schemas and rewrites the golden file.

Needs Java 17 and Maven, which fetches Kafka's jars where they are not in the local repository yet.
"""

from __future__ import annotations

import lzma
import shutil
import subprocess
import sys
from pathlib import Path

from tools.protocol.generate import schemas

VERSION = "3.9.1"
GOLDEN = Path(__file__).parent.parent.parent / "tests" / "unit" / "wire" / "golden" / "messages.txt.xz"
REPOSITORY = Path.home() / ".m2" / "repository"
ARTIFACTS = {
    "org.apache.kafka": ("kafka-clients", "kafka-group-coordinator", "kafka-transaction-coordinator"),
}
# Whatever version of these Maven chose for kafka-clients will do.
COMPANIONS = ("org/slf4j/slf4j-api", "org/lz4/lz4-java", "org/xerial/snappy/snappy-java", "com/github/luben/zstd-jni")
LAYOUT_PACKAGES = {
    "group_records": "org.apache.kafka.coordinator.group.generated.",
    "transaction_records": "org.apache.kafka.coordinator.transaction.generated.",
    "consumer_protocol": "org.apache.kafka.common.message.",
}


def jars() -> list[Path]:
    found: list[Path] = []
    for group, names in ARTIFACTS.items():
        for name in names:
            jar = REPOSITORY / group.replace(".", "/") / name / VERSION / f"{name}-{VERSION}.jar"
            if not jar.exists():
                artifact = f"-Dartifact={group}:{name}:{VERSION}"
                subprocess.run(["mvn", "-q", "dependency:get", artifact], check=True)
            found.append(jar)
    for folder in COMPANIONS:
        found += sorted((REPOSITORY / folder).rglob("*.jar"))[-1:]
    return found


def java_classes() -> list[str]:
    names: list[str] = []
    for schema in schemas():
        if schema.api is not None or schema.module == "headers":
            names += [f"org.apache.kafka.common.message.{name}Data" for name in schema.messages]
        else:
            names += [LAYOUT_PACKAGES[schema.module] + name for name in schema.messages]
    return names


def main() -> None:
    if shutil.which("java") is None:
        sys.exit("golden data is made by Java 17: install it, or keep the committed file")
    class_path = ":".join(str(jar) for jar in jars())
    source = str(Path(__file__).parent / "Dump.java")
    done = subprocess.run(["java", "-cp", class_path, source, *java_classes()], check=True, stdout=subprocess.PIPE)
    GOLDEN.parent.mkdir(parents=True, exist_ok=True)
    GOLDEN.write_bytes(lzma.compress(done.stdout, preset=9))
    lines = done.stdout.count(b"\n")
    print(f"{lines} messages, {len(done.stdout):,} bytes of text, {GOLDEN.stat().st_size:,} compressed")


if __name__ == "__main__":
    main()
