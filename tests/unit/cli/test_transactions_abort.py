from __future__ import annotations

from dataclasses import replace

import pytest

from braidlog.cli.transactions_abort import _starting_at
from braidlog.client.admin.transactions import ActiveProducer
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

PLACE = TopicPartition("orders", 0)


def test_which_transaction_is_meant() -> None:
    open_one = ActiveProducer(PLACE, 7, 0, -1, 0, 0, 40)
    idle = replace(open_one, producer_id=8, transaction_start=-1)
    assert _starting_at([idle, open_one], PLACE, 40) == open_one
    with pytest.raises(UserError, match="starts at offset 41; open ones start at 40"):
        _starting_at([idle, open_one], PLACE, 41)
    with pytest.raises(UserError, match="none is open there"):
        _starting_at([idle], PLACE, 40)
