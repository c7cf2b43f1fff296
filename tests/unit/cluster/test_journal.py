from __future__ import annotations

import pytest

from braidlog.cluster.journal import (
    CorruptStoreError,
    decode_snapshot,
    encode_frame,
    encode_snapshot,
    encode_transaction,
    read_transactions,
    valid_length,
)
from braidlog.cluster.tree import ZnodeTree
from support.journal_steps import build, dump, frames


def test_replaying_the_journal_rebuilds_the_tree() -> None:
    tree, done = build()
    journal = encode_frame([encode_transaction(each) for each in done[:2]]) + frames(done[2:])[0]
    assert valid_length("j", journal) == len(journal)
    assert list(read_transactions(journal, len(journal))) == done
    replayed = ZnodeTree()
    for each in read_transactions(journal, len(journal)):
        replayed.replay(each)
    assert dump(replayed.root) == dump(tree.root)
    assert replayed.ephemerals == tree.ephemerals == {7: {"/a/e": None}}
    assert replayed.zxid == 3


def test_a_snapshot_holds_everything() -> None:
    tree, _ = build()
    read = decode_snapshot("s", encode_snapshot(tree))
    assert dump(read.root) == dump(tree.root)
    assert read.ephemerals == tree.ephemerals
    assert read.zxid == tree.zxid
    assert dump(decode_snapshot("s", encode_snapshot(ZnodeTree())).root) == dump(ZnodeTree().root)


def test_every_flipped_bit_of_a_snapshot_is_noticed() -> None:
    good = encode_snapshot(build()[0])
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 1
        with pytest.raises(CorruptStoreError, match="snapshot-x"):
            decode_snapshot("snapshot-x", bytes(bad))
