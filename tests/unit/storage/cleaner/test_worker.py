from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from braidlog.storage.cleaner.worker import serve
from braidlog.storage.files import OsFiles
from support.cleaner_fixture import SegmentDirectory, three_keys


@pytest.fixture
def directory(tmp_path: Path) -> SegmentDirectory:
    return three_keys(tmp_path)


def test_the_worker_answers_line_by_line(directory: SegmentDirectory) -> None:
    requests = io.StringIO(directory.request(9).to_json() + "\nnonsense\n")
    results = io.StringIO()
    serve(requests, results, OsFiles())
    first, second = results.getvalue().splitlines()
    assert json.loads(first)["records_after"] == 3
    assert json.loads(second)["error"] == "bug"
