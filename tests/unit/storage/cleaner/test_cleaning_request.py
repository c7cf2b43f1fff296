from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from braidlog.storage.cleaner.cleaning_request import CleanerConfig, CleaningRequest, CleaningResult
from braidlog.storage.index.transaction_index import AbortedTxn
from support.cleaner_fixture import SegmentDirectory, three_keys


@pytest.fixture
def directory(tmp_path: Path) -> SegmentDirectory:
    return three_keys(tmp_path)


def test_requests_and_results_travel_as_json(directory: SegmentDirectory) -> None:
    request = directory.request(9, memory=CleanerConfig(max_io_bytes_per_second=float("inf")))
    request = replace(request, aborted_later=(AbortedTxn(7, 3, 11, 10),))
    assert CleaningRequest.from_json(request.to_json()) == request
    result = directory.compact(request)
    assert CleaningResult.from_json(result.to_json()) == result
