from __future__ import annotations

import gzip
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.codec import gzip_decode, gzip_encode

from braidlog.core.protocol_errors import CorruptMessageError, UnsupportedCompressionTypeError
from braidlog.wire.records import compression
from braidlog.wire.records.batch import CODEC_GZIP, CODEC_LZ4, CODEC_NONE, CODEC_SNAPPY, CODEC_ZSTD
from braidlog.wire.records.compression import codec_named, compress, decompress
from support.record_cases import mutations, quick

CODECS = [CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD]
SAMPLE = b"".join(b'{"id": %d, "name": "user-%d"}' % (i, i % 7) for i in range(9000))


def unpack(codec: int, data: bytes, limit: int = 1 << 26, magic: int = 2) -> bytes:
    return decompress(codec, b"x" + data + b"y", 1, len(data) + 1, limit=limit, magic=magic)


@pytest.mark.parametrize("codec", [CODEC_NONE, *CODECS])
@quick
@given(data=st.binary(max_size=300) | st.sampled_from([SAMPLE, SAMPLE[:65536], SAMPLE[:65537], b"a" * 200_000]))
def test_round_trip(codec: int, data: bytes) -> None:
    assert unpack(codec, compress(codec, data)) == data
    assert unpack(codec, compress(codec, data, magic=0), magic=0) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [(CODEC_GZIP, (1, 6, 9, -1)), (CODEC_LZ4, (1, 9, 12, 17)), (CODEC_ZSTD, (-7, 1, 19))]
)
def test_levels(codec: int, levels: tuple[int, ...]) -> None:
    sizes = []
    for level in levels:
        packed = compress(codec, SAMPLE, level)
        assert unpack(codec, packed) == SAMPLE
        assert unpack(codec, compress(codec, SAMPLE, level, magic=0), magic=0) == SAMPLE
        sizes.append(len(packed))
    assert len(set(sizes)) > 1


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_at_the_limit(codec: int) -> None:
    packed = compress(codec, bytes(20_000_000))
    assert len(packed) < 1_000_000
    with pytest.raises(CorruptMessageError, match="more than the 1000000 bytes allowed"):
        unpack(codec, packed, limit=1_000_000)
    with pytest.raises(CorruptMessageError, match="more than the 19999999 bytes allowed"):
        unpack(codec, packed, limit=19_999_999)
    assert unpack(codec, packed, limit=20_000_000) == bytes(20_000_000)


def test_many_small_blocks_are_not_taken_for_a_bomb() -> None:
    frames = b"".join(compress(CODEC_ZSTD, b"%d" % i) for i in range(1000))
    assert unpack(CODEC_ZSTD, frames, limit=10_000) == b"".join(b"%d" % i for i in range(1000))
    with pytest.raises(CorruptMessageError, match="allowed"):
        unpack(CODEC_ZSTD, frames, limit=100)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"short", SAMPLE[:2000]])
def test_cut_data_is_corrupt(codec: int, data: bytes) -> None:
    packed = compress(codec, data)
    for cut in range(len(packed)):
        # Snappy's blocks have no end mark: cut between them it is just shorter.
        if codec == CODEC_SNAPPY and cut == 16:
            continue
        with pytest.raises(CorruptMessageError):
            unpack(codec, packed[:cut])


@pytest.mark.parametrize("codec", CODECS)
@quick
@given(data=st.data())
def test_broken_data_raises_nothing_else(codec: int, data: st.DataObject) -> None:
    packed = data.draw(mutations(compress(codec, SAMPLE[:500])))
    for magic in (0, 2):
        with suppress(CorruptMessageError):
            assert len(unpack(codec, packed, limit=100_000, magic=magic)) <= 100_000


def test_lz4_of_format_0_has_the_checksum_of_kafka_0_8() -> None:
    right, wrong = compress(CODEC_LZ4, b"data"), compress(CODEC_LZ4, b"data", magic=0)
    assert (right[:7].hex(), wrong[:7].hex()) == ("04224d18604082", "04224d186040" + wrong[6:7].hex())
    assert right[6] != wrong[6]
    assert right[7:] == wrong[7:]
    assert unpack(CODEC_LZ4, wrong, magic=0) == unpack(CODEC_LZ4, right, magic=0) == b"data"
    with pytest.raises(CorruptMessageError):
        unpack(CODEC_LZ4, wrong)


def test_lz4_frames_with_every_optional_field_are_read() -> None:
    import cramjam

    for linked in (False, True):
        packer = cramjam.lz4.Compressor(level=1, content_checksum=True, block_linked=linked)
        packer.compress(SAMPLE)
        frame = bytes(packer.finish())
        assert unpack(CODEC_LZ4, frame) == SAMPLE
        # Shut in a limit that only the content, not the blocks' sizes, keeps to.
        assert unpack(CODEC_LZ4, frame, limit=len(SAMPLE)) == SAMPLE
        assert unpack(CODEC_LZ4, frame + frame) == SAMPLE + SAMPLE


def test_raw_snappy_is_read() -> None:
    import cramjam

    assert unpack(CODEC_SNAPPY, bytes(cramjam.snappy.compress_raw(SAMPLE))) == SAMPLE
    with pytest.raises(CorruptMessageError, match="allowed"):
        unpack(CODEC_SNAPPY, bytes(cramjam.snappy.compress_raw(SAMPLE)), limit=1000)


def test_gzip_members_and_padding_as_java_reads_them() -> None:
    assert unpack(CODEC_GZIP, gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"
    assert unpack(CODEC_GZIP, gzip.compress(b"one") + bytes(5)) == b"one"
    assert unpack(CODEC_GZIP, gzip_encode(SAMPLE)) == SAMPLE
    assert gzip_decode(compress(CODEC_GZIP, SAMPLE)) == SAMPLE


def test_names() -> None:
    assert [codec_named(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == [0, 1, 2, 3, 4]
    assert codec_named("uncompressed") == CODEC_NONE
    with pytest.raises(UnsupportedCompressionTypeError, match="brotli"):
        codec_named("brotli")
    with pytest.raises(UnsupportedCompressionTypeError):
        compress(5, b"")
    with pytest.raises(CorruptMessageError):
        unpack(7, b"abc")


def test_the_library_is_imported_only_when_needed() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from braidlog.wire.records import validation, reading, filtering;"
        "from braidlog.wire.records.compression import compress; compress(1, b'x');"
        "print('cramjam' in sys.modules, 'importlib.metadata' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    assert compression._library().__name__ == "cramjam"
