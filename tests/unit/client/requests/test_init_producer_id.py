"""A new id, or the next epoch of a known one."""

from __future__ import annotations

from braidlog.client.requests.init_producer_id import NO_TRANSACTION_TIMEOUT, init_producer_id_request


def test_a_new_id_or_the_next_epoch() -> None:
    plain = init_producer_id_request(None)
    assert (plain.transactional_id, plain.transaction_timeout_ms) == (None, NO_TRANSACTION_TIMEOUT)
    assert (plain.producer_id, plain.producer_epoch) == (-1, -1)
    known = init_producer_id_request("t", 60_000, producer_id=7, producer_epoch=3)
    assert (known.transactional_id, known.producer_id, known.producer_epoch) == ("t", 7, 3)
