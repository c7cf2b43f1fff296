from __future__ import annotations

import pytest

from braidlog.wire.records.checksum import crc32c


def test_the_check_value_of_crc32c() -> None:
    assert crc32c(b"123456789", 0) == 0xE3069283


@pytest.mark.parametrize("cut", [0, 1, 500, 999, 1000])
def test_a_checksum_goes_on_from_the_one_before(cut: int) -> None:
    data = bytes(range(250)) * 4
    assert crc32c(memoryview(data)[cut:], crc32c(data[:cut], 0)) == crc32c(data, 0)
