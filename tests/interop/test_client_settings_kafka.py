"""Every setting of Kafka 3.9's clients, as their own documentation has it: name, type, default and importance."""

from __future__ import annotations

import html
import re
import subprocess

import pytest
from tools.peers.kafka import kafka_libs
from tools.peers.maven import PeerMissing

from braidlog.client.definitions.common import DIFFERENCES
from braidlog.client.settings import ADMIN, CONSUMER, PRODUCER, definitions, without_effect
from braidlog.config.setting import TYPE_NAMES

pytestmark = pytest.mark.peer

CLASSES = {PRODUCER: "producer.ProducerConfig", CONSUMER: "consumer.ConsumerConfig", ADMIN: "admin.AdminClientConfig"}
OURS = {"sasl.username", "sasl.password", "sasl.oauth.token.provider"}
# All kinds share the table of what is common, whether or not Kafka's kind has a use for it.
SHARED = {"client.rack", "default.api.timeout.ms"}
# Of one kind alone Kafka calls it less important.
IMPORTANCE = {"client.id"}
ASSIGNORS = "class org.apache.kafka.clients.consumer."

_ROW = re.compile(
    r'<h4><a id="([^"]+)"></a>.*?<th>Type:</th><td>(.*?)</td>.*?<th>Default:</th><td>(.*?)</td>'
    r".*?<th>Valid Values:</th><td>.*?</td>.*?<th>Importance:</th><td>(.*?)</td>",
    re.DOTALL,
)


def _documented(kind: str) -> dict[str, tuple[str, str, str]]:
    try:
        libs = kafka_libs()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    program = ["java", "-cp", f"{libs}/*", f"org.apache.kafka.clients.{CLASSES[kind]}"]
    page = subprocess.run(program, check=True, capture_output=True, text=True, timeout=60).stdout
    return {key: (type_, _plain(default), importance) for key, type_, default, importance in _ROW.findall(page)}


def _plain(default: str) -> str:
    """Without what follows for people, and assignors by the names that they have in the protocol."""
    text = re.sub(r" \(.*\)$", "", html.unescape(default))
    text = text.replace(f"{ASSIGNORS}RangeAssignor", "range")
    text = text.replace(f"{ASSIGNORS}CooperativeStickyAssignor", "cooperative-sticky")
    return "" if text in ("null", '""') else text


@pytest.mark.parametrize("kind", CLASSES)
def test_settings_are_those_of_kafka(kind: str) -> None:
    theirs = _documented(kind)
    assert len(theirs) > 70
    ours = {**without_effect(), **definitions(kind)}
    assert theirs.keys() - ours.keys() == set()
    assert ours.keys() - theirs.keys() <= OURS | SHARED
    wrong = []
    for key, (type_, default, importance) in theirs.items():
        row = ours[key]
        here = (TYPE_NAMES[row.kind], row.default_text or "", importance if key in IMPORTANCE else row.importance)
        expected = (type_, default, importance)
        if key in DIFFERENCES:
            assert DIFFERENCES[key][0] == default != here[1]
            expected = (type_, here[1], importance)
        if here != expected:
            wrong.append(f"{key}: Kafka {expected}, here {here}")
    assert wrong == []
