"""What clients and Apache Kafka 3.9 said to each other, recorded by `python -m tools.capture`, read by our codec."""

from __future__ import annotations

import pytest
from tools.capture import load

from braidlog.wire.apis import APIS, decode_request, decode_response, encode_request, encode_response
from braidlog.wire.headers import read_request_header
from braidlog.wire.reader import Reader

EXCHANGES = load()


def name(number: int) -> str:
    key, version = EXCHANGES[number].api
    return f"{number}-{EXCHANGES[number].client.replace(' ', '-')}-{APIS[key].name}-v{version}"


@pytest.mark.parametrize("number", range(len(EXCHANGES)), ids=name)
def test_an_exchange_is_read_and_written_again_the_same(number: int) -> None:
    exchange = EXCHANGES[number]
    reader = Reader(exchange.request)
    header = read_request_header(reader)
    key, version = header.request_api_key, header.request_api_version
    request = decode_request(key, version, reader)
    assert reader.remaining() == 0
    again = encode_request(key, version, header.correlation_id, header.client_id, request)
    assert again.getvalue()[4:] == exchange.request
    if exchange.response is None:
        return
    correlation_id, response = decode_response(key, version, exchange.response)
    assert correlation_id == header.correlation_id
    assert encode_response(key, version, correlation_id, response).getvalue()[4:] == exchange.response


def test_every_client_is_there_with_what_it_needs() -> None:
    apis: dict[str, set[int]] = {}
    for exchange in EXCHANGES:
        apis.setdefault(exchange.client, set()).add(exchange.api[0])
    assert set(apis) == {"confluent-kafka", "kafka-python", "aiokafka", "java tools", "java"}
    for client, keys in apis.items():
        assert keys >= {0, 1, 3, 18}, client
    assert len(set().union(*apis.values())) > 30


def test_produce_without_acknowledgement_is_there() -> None:
    silent = [exchange for exchange in EXCHANGES if exchange.response is None and exchange.api[0] == 0]
    assert silent
