from __future__ import annotations

import threading
import time

import pytest

from braidlog.core.gil import yield_gil


def test_only_threads_beside_the_main_one_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[tuple[int, float]] = []
    monkeypatch.setattr(time, "sleep", lambda pause: pauses.append((threading.get_ident(), pause)))
    beside = threading.Thread(target=yield_gil)
    beside.start()
    beside.join()
    assert [pause for thread, pause in pauses if thread == beside.ident] == [pytest.approx(0.00005)]
    assert threading.current_thread() is threading.main_thread()
    yield_gil()
    assert [pause for thread, pause in pauses if thread == threading.get_ident()] == []
