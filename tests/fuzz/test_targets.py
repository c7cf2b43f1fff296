"""The targets of `tools.fuzz` in a small form: the kept corpus, and some thousand inputs that are always the same.

New findings are for `python -m tools.fuzz` to make; a test run must not fail for one.
"""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.fuzz.__main__ import fuzz, main
from tools.fuzz.catalog import TARGETS
from tools.fuzz.mutation import mutated
from tools.fuzz.target import CORPUS, MIB, Target, TooMuchMemory, read_corpus

INPUTS = 1000
FEWER = {"client_frames": 200, "frames": 300, "regular_expression": 300}

KEPT = [
    pytest.param(target, data, id=f"{target.name}-{reason}")
    for target in TARGETS.values()
    for reason, data in target.kept().items()
]


@pytest.fixture(autouse=True, scope="module")
def traced() -> Iterator[None]:
    tracemalloc.start()
    with warnings.catch_warnings():
        # Python's own about patterns in settings, which are up to the operator.
        warnings.simplefilter("ignore", FutureWarning)
        yield
    tracemalloc.stop()


@pytest.mark.parametrize("name", TARGETS)
def test_some_seed_is_accepted(name: str) -> None:
    """Else every change of it would end at the first check."""
    target = TARGETS[name]
    assert any(target.check(seed) for seed in target.seeds())


@pytest.mark.parametrize("name", TARGETS)
def test_changed_inputs_are_refused_in_the_known_ways(name: str) -> None:
    target = TARGETS[name]
    seeds = list(target.seeds())
    for seed in seeds:
        # What is imported and compiled on first use is no input's doing.
        target.check(seed)
    for number, data in enumerate(mutated(seeds, f"{name} 1", FEWER.get(name, INPUTS))):
        try:
            target.check_memory(data)
        except Exception as problem:
            problem.add_note(f"input {number} of {name}: {data[:400].hex()}")
            raise


@pytest.mark.parametrize(("target", "data"), KEPT)
def test_what_was_found_once_stays_mended(target: Target, data: bytes) -> None:
    # What is imported on first use is not the input's doing.
    target.check(data)
    target.check_memory(data)


def test_every_kept_input_has_a_target_and_a_reason() -> None:
    for path in CORPUS.glob("*.txt"):
        assert path.stem in TARGETS
        entries = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        assert len(read_corpus(path)) == len(entries), f"{path.name} has the same reason twice"
        assert all(reason.strip() for reason in read_corpus(path))
        assert path.stat().st_size < 20_000


def test_a_target_that_fails_is_noticed() -> None:
    """The tests above can fail: by another error, and by its memory."""

    def fails(data: bytes) -> None:
        if data == b"!":
            raise KeyError
        bytearray(4 * MIB if data == b"m" else 0)

    target = Target("failing", fails, (ValueError,), lambda: [b"a"])
    assert target.check_memory(b"a")
    with pytest.raises(KeyError):
        target.check(b"!")
    with pytest.raises(TooMuchMemory):
        target.check_memory(b"m")


def test_inputs_are_the_same_in_every_run() -> None:
    assert list(mutated([b"abc"], "seed", 50)) == list(mutated([b"abc"], "seed", 50))
    assert len(set(mutated([b"abc" * 10], "seed", 50))) > 40


def test_the_fuzzer_runs_without_atheris_and_says_what_it_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--target", "plain", "--seconds", "0", "--random", "--corpus", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("plain: ")
    assert main(["--target", "nothing"]) == 2
    assert "there is no target nothing" in capsys.readouterr().err

    def fails(data: bytes) -> None:
        raise KeyError

    monkeypatch.setitem(TARGETS, "failing", Target("failing", fails, (), lambda: [b"a"]))
    report = fuzz("failing", 1, tmp_path, guided=False)
    assert report.findings == 1
    assert "KeyError" in str(report)
    assert list(tmp_path.glob("failing-crash-*"))
