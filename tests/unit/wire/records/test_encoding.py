from __future__ import annotations

from librt.strings import BytesWriter

from braidlog.wire.records.batch import HEADER_SIZE, check_crc, read_header
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.encoding import encode_headers, write_nullable, write_record, write_record_parts, write_u32
from braidlog.wire.records.reading import Record


def test_null_and_empty_differ() -> None:
    out = BytesWriter()
    write_nullable(out, None)
    write_nullable(out, b"")
    write_nullable(out, b"ab")
    assert out.getvalue() == b"\x01\x00\x04ab"


def test_checksums_are_unsigned() -> None:
    out = BytesWriter()
    for value in (0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        write_u32(out, value)
    assert out.getvalue() == bytes.fromhex("00000000 7fffffff 80000000 ffffffff")


def test_a_record_is_its_length_then_its_fields() -> None:
    out = BytesWriter()
    write_record(out, 0, 1, 2, b"k", None, (("h", b"v"),))
    assert out.getvalue() == b"\x16\x00\x02\x04\x02k\x01\x02\x02h\x02v"


def test_headers_may_be_encoded_before() -> None:
    headers = (("a", None), ("b", b"x" * 200))
    one, two = BytesWriter(), BytesWriter()
    write_record(one, 0, 3, 4, None, b"v", headers)
    write_record_parts(two, 0, 3, 4, None, b"v", encode_headers(headers))
    assert one.getvalue() == two.getvalue()


def test_the_header_of_a_batch_has_its_checksum() -> None:
    data = build_batch([Record(timestamp=5, value=b"v"), Record(timestamp=9, value=b"w")], base_offset=7)
    header = read_header(data, 0, len(data))
    check_crc(data, header)
    assert (header.base_offset, header.last_offset, header.max_timestamp, header.size) == (7, 8, 9, len(data))
    assert len(data) > HEADER_SIZE
