"""Spark's own Kafka connector: its jars from Maven Central, beside those that PySpark brings.

The connector is versioned with Spark. Where Maven Central does not have the one of the installed PySpark, the newest
that is there and runs on it stands in: who reports a figure or a finding has to say which, hence `Connector.title`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from tools.peers.maven import Artifact, PeerMissing, cache_root, fetch_classpath

_SCALA: Final = "2.13"
_TOKENS: Final = f"spark-token-provider-kafka-0-10_{_SCALA}"
# 4.0.0 does not stream on Spark 4.3 (a constructor that it calls is gone). 4.2.0 does, but its token provider, which
# only delegation tokens use, is not on Maven Central: the one of 4.0.0 takes its place.
_STAND_IN: Final = ("4.2.0", "4.0.0")


class Connector(NamedTuple):
    version: str
    spark: str
    jars: tuple[Path, ...]

    @property
    def is_of_this_spark(self) -> bool:
        return self.version == self.spark

    @property
    def title(self) -> str:
        name = f"spark-sql-kafka-0-10 {self.version}"
        return name if self.is_of_this_spark else f"{name} on Spark {self.spark}"

    @property
    def conf(self) -> str:
        """What the setting `spark.jars` has to be."""
        return ",".join(map(str, self.jars))


def spark_kafka_connector() -> Connector:
    """The connector, fetched if need be; raises `PeerMissing` with the reason."""
    if find_spec("pyspark") is None:
        raise PeerMissing("Spark's Kafka connector needs PySpark (pip install 'braidlog[spark]')")
    spark = version("pyspark")
    choices = ((spark, spark), _STAND_IN)
    for connector, _ in choices:
        if (libs := cache_root() / _place(connector) / "libs").is_dir():
            return Connector(connector, spark, _additional(libs))
    reasons = []
    for connector, tokens in choices:
        try:
            libs = fetch_classpath(_place(connector), _artifacts(connector, tokens))
        except PeerMissing as missing:
            reasons.append(str(missing))
            continue
        return Connector(connector, spark, _additional(libs))
    raise PeerMissing("; ".join(reasons))


def _place(connector: str) -> str:
    return f"spark-kafka-{connector}"


class _WithoutTokens(Artifact):
    """Whose own choice of token provider is left out, since it could not be resolved."""

    def as_dependency(self) -> str:
        left_out = f"<groupId>org.apache.spark</groupId><artifactId>{_TOKENS}</artifactId>"
        exclusion = f"<exclusions><exclusion>{left_out}</exclusion></exclusions>"
        return super().as_dependency().replace("</dependency>", f"{exclusion}</dependency>")


def _artifacts(connector: str, tokens: str) -> Sequence[Artifact]:
    return (
        _WithoutTokens("org.apache.spark", f"spark-sql-kafka-0-10_{_SCALA}", connector),
        Artifact("org.apache.spark", _TOKENS, tokens),
    )


def _additional(libs: Path) -> tuple[Path, ...]:
    """Those that PySpark does not have; a second version of what it has would only confuse the class loader."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    present = {_name(jar) for jar in (Path(spec.origin).parent / "jars").glob("*.jar")}
    return tuple(sorted(jar for jar in libs.glob("*.jar") if _name(jar) not in present))


def _name(jar: Path) -> str:
    return re.sub(r"-\d[\w.\-]*\.jar$", "", jar.name)
