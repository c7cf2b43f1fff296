from __future__ import annotations

from braidlog.storage.cleaner.cleaned_transaction_metadata import CleanedTransactionMetadata
from braidlog.storage.index.transaction_index import AbortedTxn

ABORTED = AbortedTxn(7, 10, 14, 15)


def test_data_of_an_aborted_transaction_goes_and_its_marker_stays_once() -> None:
    metadata = CleanedTransactionMetadata([ABORTED])
    assert not metadata.data_is_aborted(7, True, 9)
    assert metadata.data_is_aborted(7, True, 12)
    assert not metadata.data_is_aborted(7, False, 13)
    assert not metadata.marker_is_superfluous(7, False, 14)
    assert metadata.take_kept() == [ABORTED]
    assert metadata.take_kept() == []
    # The producer's next transaction is another one.
    assert not metadata.data_is_aborted(7, True, 20)


def test_a_marker_whose_data_is_gone_is_superfluous() -> None:
    metadata = CleanedTransactionMetadata([ABORTED])
    assert metadata.marker_is_superfluous(7, False, 14)
    assert metadata.marker_is_superfluous(8, True, 15)
    assert metadata.take_kept() == []


def test_a_commit_marker_stays_while_there_is_data_before_it() -> None:
    metadata = CleanedTransactionMetadata([])
    assert not metadata.data_is_aborted(8, True, 3)
    assert not metadata.marker_is_superfluous(8, True, 4)
    assert metadata.marker_is_superfluous(8, True, 5)


def test_an_emptied_control_batch_is_superfluous() -> None:
    assert CleanedTransactionMetadata([ABORTED]).marker_is_superfluous(7, None, 14)
