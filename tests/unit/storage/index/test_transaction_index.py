from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import OsFiles
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.transaction_index import AbortedTxn, TransactionIndex


def txn_index(root: Path) -> TransactionIndex:
    files = OsFiles()
    return TransactionIndex(files, HandlePool(files, 4), f"{root}/x")


def test_aborted_transactions_are_found_by_offset_range(tmp_path: Path) -> None:
    index = txn_index(tmp_path)
    assert not (tmp_path / "x").exists()
    first = AbortedTxn(1, 0, 10, 11)
    second = AbortedTxn(2, 5, 20, 13)
    third = AbortedTxn(3, 13, 30, 31)
    for txn in (first, second, third):
        index.append(txn)
    assert (tmp_path / "x").read_bytes() == b"".join(pack(">hqqqq", 0, *txn) for txn in (first, second, third))
    for reader in (index, txn_index(tmp_path)):
        for start, end, expected, complete in [
            (0, 100, [first, second, third], False),
            (0, 5, [first], True),
            (11, 12, [second], True),
            (11, 13, [second], True),
            (11, 14, [second, third], True),
            (21, 22, [third], True),
            (31, 99, [], False),
        ]:
            found: list[AbortedTxn] = []
            assert reader.collect(start, end, found) == complete
            assert found == expected
    index.truncate_to_offset(20)
    assert txn_index(tmp_path).entries() == [first]
    index.reset()
    assert txn_index(tmp_path).entries() == []


@pytest.mark.parametrize("data", [bytes(33), pack(">hqqqq", 1, 1, 0, 10, 11), pack(">hqqqq", 0, 1, 10, 0, 11)])
def test_a_broken_transaction_index_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(CorruptLogError, match=str(tmp_path)):
        txn_index(tmp_path).entries()
