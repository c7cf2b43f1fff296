"""One Spark session for all tests of a worker, on two threads, with nothing on the network but loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.spark_classes import java_options

from pyspark_braidlog.session import spark_environment

_NO_DERBY_LOG = "-Dderby.stream.error.file=/dev/null"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # Spark's own Python leaves sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
    # Files that start a Spark of their own take long, with few tests: last, one worker would be left alone with them.
    sharing = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path in sharing)


@pytest.fixture(scope="session", autouse=True)
def java_python_and_loopback() -> None:
    """What Spark needs to know before it starts; it would take the first `python3` on the path for its workers."""
    os.environ.update(spark_environment("local[2]"))
    # Of every Java that a test starts by way of Spark, in whatever process.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())
    os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", java_options())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("braidlog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"-XX:+UseSerialGC {_NO_DERBY_LOG}")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()
