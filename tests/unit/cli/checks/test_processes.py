from __future__ import annotations

from pathlib import Path

from braidlog.cli.checks import processes


def test_who_listens_by_proc(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n"
        "   1: 0100007F:2385 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0\n"
    )
    (tmp_path / "77" / "fd").mkdir(parents=True)
    (tmp_path / "77" / "fd" / "3").symlink_to("socket:[4711]")
    (tmp_path / "77" / "cmdline").write_bytes(b"nginx\0-g\0daemon off\0")
    (tmp_path / "77" / "limits").write_text("Limit           Soft  Hard  Units\nMax open files  1024  4096  files\n")
    proc = str(tmp_path)
    assert processes.listener_on(9092, proc) == 77
    assert processes.listener_on(9093, proc) is None, "a connection is not a listener"
    assert processes.command_of(77, proc) == "process 77 (nginx -g daemon off)"
    assert processes.command_of(78, proc) == "process 78"
    assert processes.open_files_limit(77, proc) == 1024
    assert processes.open_files_count(77, proc) == 1
    assert processes.open_files_limit(78, proc) is None
