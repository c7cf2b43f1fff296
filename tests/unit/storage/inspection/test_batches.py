from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braidlog.storage.inspection.batches import FoundBatch, Gap, walk_file
from braidlog.wire.records.batch import ATTRIBUTES_AT
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.inspected_files import FILES
from support.manager_fixture import NOW


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damage=st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=40)), max_size=3),
    cut=st.integers(0, 300),
)
def test_whatever_is_done_to_a_file_the_walk_accounts_for_every_byte(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, bytes]], cut: int
) -> None:
    records = [Record(key=b"k%d" % number, value=b"v" * number, timestamp=NOW) for number in range(20)]
    data = bytearray(b"".join(build_batch([record], base_offset=number) for number, record in enumerate(records)))
    whole = bytes(data)
    for position, garbage in damage:
        data[position : position + len(garbage)] = garbage
    del data[len(data) - cut :]
    path = tmp_path_factory.mktemp("walk") / "00000000000000000000.log"
    path.write_bytes(bytes(data))
    position = 0
    for found in walk_file(FILES, str(path)):
        assert found.position == position
        position += found.size if isinstance(found, Gap) else found.header.size
        if isinstance(found, FoundBatch) and found.is_valid:
            # From the attributes on the checksum vouches for it.
            assert found.data[ATTRIBUTES_AT:] in whole
    assert position == len(data)
