from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.errors import CorruptLogError, UserError
from braidlog.core.ids import parse_id
from braidlog.storage.dirs.meta_properties import (
    MetaProperties,
    claim,
    decode_meta_properties,
    encode_meta_properties,
    parse_properties,
)

DIRECTORY_ID = parse_id("AAECAwQFBgcICQoLDA0ODw")
# Written by Kafka 3.9.1 (its date line aside).
KAFKA_V0 = (
    "#\n#Sun Nov 15 23:44:15 UTC 2026\nbroker.id=7\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\nversion=0\n"
    "cluster.id=Mk3OEYBSD34fcwNTJENDM2\n"
)
KAFKA_V1 = KAFKA_V0.replace("broker.id", "node.id").replace("version=0", "version=1")


@pytest.mark.parametrize(("version", "text"), [(0, KAFKA_V0), (1, KAFKA_V1)])
def test_both_versions_as_kafka_writes_them(version: int, text: str) -> None:
    properties = MetaProperties(version, "Mk3OEYBSD34fcwNTJENDM2", 7, DIRECTORY_ID)
    assert decode_meta_properties(text, "f") == properties
    assert encode_meta_properties(properties, 1_794_786_255_000) == text


@given(
    st.sampled_from([0, 1]),
    st.text("abc=: #!\\\t\u00e9", min_size=1).filter(lambda text: text == text.lstrip()),
    st.integers(0, 2**31 - 1),
    st.none() | st.binary(min_size=16, max_size=16),
)
def test_round_trip(version: int, cluster_id: str, node_id: int, directory_id: bytes | None) -> None:
    properties = MetaProperties(version, cluster_id, node_id, directory_id)
    assert decode_meta_properties(encode_meta_properties(properties, 0), "f") == properties


def test_java_property_syntax() -> None:
    text = "! note\n  a : 1\nb\t2\nlong=one\\\n   two\nk\\=ey=v\\u0041l\\n\nempty\n#end"
    assert parse_properties(text) == {"a": "1", "b": "2", "long": "onetwo", "k=ey": "vAl\n", "empty": ""}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("broker.id=1\n", "unsupported version"),
        ("version=two\n", "unsupported version"),
        ("version=0\nbroker.id=one\n", "not a number"),
        ("version=1\nnode.id=1\n", "needs cluster.id"),
        ("version=0\ndirectory.id=short\n", "directory.id"),
    ],
)
def test_a_broken_one_says_why(text: str, complaint: str) -> None:
    with pytest.raises(CorruptLogError, match=complaint):
        decode_meta_properties(text, "/data/meta.properties")


def test_a_new_directory_is_claimed() -> None:
    assert claim(None, "cluster", 3, "f") == MetaProperties(0, "cluster", 3)


def test_ours_stays_as_it_is() -> None:
    found = MetaProperties(1, "cluster", 3, DIRECTORY_ID)
    assert claim(found, "cluster", 3, "f") == found


def test_what_is_missing_is_filled_in() -> None:
    assert claim(MetaProperties(0), "cluster", 3, "f") == MetaProperties(0, "cluster", 3)


def test_another_cluster_or_broker_is_refused_with_advice() -> None:
    with pytest.raises(UserError, match=r"belongs to cluster other.*log.dirs"):
        claim(MetaProperties(0, "other", 3), "cluster", 3, "f")
    with pytest.raises(UserError, match=r"belongs to broker 4.*broker.id=4"):
        claim(MetaProperties(0, "cluster", 4), "cluster", 3, "f")


def test_a_later_version_is_refused_with_advice() -> None:
    for version in ("2", "9" * 5000):
        with pytest.raises(UserError, match=r"newer Kafka or braidlog, and this one reads up to 1; start that one"):
            decode_meta_properties(f"version={version}\nnode.id=1\n", "f")
