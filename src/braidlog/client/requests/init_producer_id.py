"""InitProducerId: the id and epoch of a producer; with a transactional id, fences the producers before."""

from __future__ import annotations

from typing import Final

from braidlog.wire.generated.init_producer_id import InitProducerIdRequest

INIT_PRODUCER_ID: Final = 22
# Of a producer without transactions.
NO_TRANSACTION_TIMEOUT: Final = 0x7FFFFFFF


def init_producer_id_request(
    transactional_id: str | None,
    timeout_ms: int = NO_TRANSACTION_TIMEOUT,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> InitProducerIdRequest:
    """With a known producer id it asks for the next epoch of that id only (KIP-360)."""
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
