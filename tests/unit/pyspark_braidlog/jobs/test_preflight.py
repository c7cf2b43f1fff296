"""What is said of a pipeline's sources without running the file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from braidlog.testing import Broker
from pyspark_braidlog.jobs.preflight import check_sources, sources_of

HEAD = """
from pyspark.sql import functions as F
BROKER = {"kafka.bootstrap.servers": "h:1"}
TOPIC = "orders"
CHANGED = 1
CHANGED = 2
"""


def options_of(body: str) -> list[dict[str, str]]:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return [each.options for each in sources_of(f"{HEAD}\ndef pipeline(spark):\n{lines}\n", "pipeline")]


ORDERS = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders"}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('return spark.readStream.format("braidlog").options(**BROKER, subscribe=TOPIC).load()', [ORDERS]),
        ('a = TOPIC\nspark.readStream.format("braidlog").options(**BROKER).option("subscribe", a).load()', [ORDERS]),
        ('a = spark.readStream.format("braidlog").option("Subscribe", f"{TOPIC}-1").load().where(F.col("a").isNull())',
         [{"subscribe": "orders-1"}]),
        # What is said last counts.
        ('spark.readStream.format("braidlog").option("a", 1).option("a", True).options(b="x", **{"A": 2}).load()',
         [{"a": "2", "b": "x"}]),
        ('a = spark.readStream.format("kafka").option("subscribe", "x").load()', []),
        ('a = spark.read.format("braidlog").option("subscribe", "x").load()', []),
        # Nobody knows before the file runs.
        ('a = spark.readStream.format("braidlog").option("subscribe", CHANGED).load()', []),
        ('a = spark.readStream.format("braidlog").option("subscribe", spark.conf.get("t")).load()', []),
        ('if TOPIC:\n    return None\nspark.readStream.format("braidlog").option("subscribe", "x").load()', []),
        ('a = 1 and spark.readStream.format("braidlog").option("subscribe", "x").load()', []),
        ('create_topics()\nspark.readStream.format("braidlog").option("subscribe", "x").load()', []),
        ('TOPIC = make()\nspark.readStream.format("braidlog").option("subscribe", TOPIC).load()', []),
    ],
)  # fmt: skip
def test_what_is_certain_to_be_read(body: str, found: list[dict[str, str]]) -> None:
    assert options_of(body) == found


READS = 'def pipeline(spark): return spark.readStream.format("braidlog").option("subscribe", "x").load()'


@pytest.mark.parametrize("before", ["make_topics()", "if TOPIC:\n    pass", "made = make_topics()", "for a in b: pass"])
def test_files_that_may_create_their_topics(before: str) -> None:
    assert sources_of(f"import os\nA = os.environ['A']\n{READS}", "pipeline")
    assert sources_of(f"{before}\n{READS}", "pipeline") == []


@pytest.mark.parametrize("text", ["def pipeline(spark:", "", "def pipeline(): pass", "x = 1"])
def test_files_that_say_nothing(text: str) -> None:
    assert sources_of(text, "pipeline") == []


def test_a_missing_topic_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "clean.py"
    with Broker(settings={"auto.create.topics.enable": "false"}) as broker:
        broker.create_topic("there")
        template = (
            f"SERVERS = {broker.bootstrap_servers!r}\n\ndef pipeline(spark):\n"
            '    return spark.readStream.format("braidlog").option("kafka.bootstrap.servers", SERVERS)'
        )
        file.write_text(f'{template}.option("subscribe", "there").load()')
        check_sources(file, "pipeline")
        # A stream may go on without its topic, if it is told to.
        file.write_text(f'{template}.option("subscribe", "nope").option("failOnDataLoss", False).load()')
        check_sources(file, "pipeline")
        for reported, said in (("nope", "topic nope does not exist at"), ("", "option subscribe")):
            file.write_text(f'{template}.option("subscribe", "{reported}").load()')
            with pytest.raises(UserError, match=re.escape(f"{file}, line 4: {said}")):
                check_sources(file, "pipeline")
