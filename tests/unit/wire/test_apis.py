"""The table of APIs, header versions and their exceptions, frames, and what a version cannot carry."""

from __future__ import annotations

import subprocess
import sys

import pytest

from braidlog.wire.apis import (
    APIS,
    api_by_name,
    decode_request,
    encode_request,
    encode_response,
)
from braidlog.wire.errors import EncodeError, MalformedError
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from braidlog.wire.reader import Reader


def test_versions_of_kafka_3_9_and_of_4_x() -> None:
    assert (APIS[0].min_version, APIS[0].max_version, APIS[0].stable_max, APIS[0].flexible_from) == (0, 13, 11, 9)
    assert (APIS[1].max_version, APIS[1].stable_max) == (18, 17)
    assert APIS[17].flexible_from == -1
    assert not APIS[17].is_flexible(1)
    assert api_by_name("Fetch") is APIS[1]
    for api in APIS.values():
        assert 0 == api.min_version <= api.stable_max <= api.max_version


def test_keys_are_named_as_their_apis() -> None:
    assert {key.name.replace("_", "").lower(): int(key) for key in ApiKey} == {
        api.name.lower(): api.key for api in APIS.values()
    }


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(EncodeError, match="version 5 of API ApiVersions"):
        encode_request(18, 5, 1, None, ApiVersionsRequest())
    with pytest.raises(EncodeError, match="API 999"):
        encode_response(999, 0, 1, ApiVersionsResponse())
    with pytest.raises(MalformedError, match="no version 99"):
        decode_request(18, 99, Reader(b""))


def test_modules_are_imported_on_first_use() -> None:
    script = (
        "import sys, braidlog.wire.apis as a, braidlog.wire.headers\n"
        "assert 'braidlog.wire.generated.produce' not in sys.modules\n"
        "assert a.APIS[0].request.__name__ == 'ProduceRequest'\n"
        "assert a.APIS[0].request is a.APIS[0].request\n"
        "assert 'braidlog.wire.generated.produce' in sys.modules\n"
        "assert 'braidlog.wire.generated.create_topics' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
