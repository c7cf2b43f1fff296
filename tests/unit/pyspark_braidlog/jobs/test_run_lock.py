from __future__ import annotations

from pathlib import Path

from pyspark_braidlog.jobs.run_lock import RunLock


def test_a_lock_is_seen_and_let_go(tmp_path: Path) -> None:
    lock, other = RunLock(tmp_path), RunLock(tmp_path)
    assert other.holder() is None
    assert lock.take()
    assert "process " in (other.holder() or "")
    assert not other.take()
    lock.release()
    assert other.holder() is None
    assert other.take()
    other.release()
    assert RunLock(tmp_path / "missing").take()
