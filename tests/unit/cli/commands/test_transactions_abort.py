from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest

from braidlog.cli.commands.transactions_abort import _confirm, _starting_at
from braidlog.client.admin.transactions import ActiveProducer
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

PLACE = TopicPartition("orders", 0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ["y\n", " YES \n"])
def test_a_person_agrees(answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    _confirm("end it", False)
    captured = capsys.readouterr()
    assert captured.err == "This will end it. Go on? [y/N] "
    assert captured.out == ""


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yeah\n"])
def test_a_person_does_not(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    with pytest.raises(UserError, match="nothing was done"):
        _confirm("end it", False)


def test_a_script_has_to_agree_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UserError, match="this would end it; add --yes to do it"):
        _confirm("end it", False)
    _confirm("end it", True)


def test_which_transaction_is_meant() -> None:
    open_one = ActiveProducer(PLACE, 7, 0, -1, 0, 0, 40)
    idle = replace(open_one, producer_id=8, transaction_start=-1)
    assert _starting_at([idle, open_one], PLACE, 40) == open_one
    with pytest.raises(UserError, match="starts at offset 41; open ones start at 40"):
        _starting_at([idle, open_one], PLACE, 41)
    with pytest.raises(UserError, match="none is open there"):
        _starting_at([idle], PLACE, 40)
