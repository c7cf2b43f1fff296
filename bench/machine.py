"""What the operating system says: about this machine, about a broker's process, and how to empty the page cache."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import shutil
import subprocess
import time
from pathlib import Path

# Of the kinds of clocks that Linux has for a process: what its scheduler counts.
_SCHEDULER_CLOCK = 2


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_nanoseconds(pid: int) -> int:
    """As `cpu_seconds`, finer: the clock that the kernel has for the processor time of each process."""
    return time.clock_gettime_ns((~pid << 3) | _SCHEDULER_CLOCK)


def started_at(pid: int) -> float:
    """When the process was made, in seconds on the boot-time clock, to a hundredth."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _kilobytes(path: Path, field: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"{path} has no {field}")


def resident_bytes(pid: int) -> int:
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmRSS")


def peak_resident_bytes(pid: int) -> int:
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM")


def proportional_bytes(pid: int) -> int:
    """Resident memory in which a page shared with others counts only in part."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss")


def open_handles(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def handle_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def evict_from_page_cache(directory: Path) -> None:
    """Write the files out and drop their pages, so that the next reader meets the disk."""
    for path in sorted(directory.rglob("*")):
        if not path.is_file():
            continue
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
    if os.geteuid() == 0:
        # A container may forbid it; the advice above has done the work then.
        with contextlib.suppress(OSError):
            Path("/proc/sys/vm/drop_caches").write_text("1")


def filesystem_type(directory: Path) -> str:
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, fs_type, *_ = line.split()
        if str(directory.resolve()).startswith(mount) and len(mount) >= len(best):
            best, kind = mount, fs_type
    return kind


def describe(work: Path) -> dict[str, str]:
    """What a reader must know to place the figures; nothing that names the machine."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": f"{model}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{memory_gb:.0f} GiB",
        "system": f"Linux {platform.release()}, {filesystem_type(work)}",
        "python": platform.python_version(),
        "java": _first_line(["java", "-version"]),
        "librdkafka": _first_line(["pkg-config", "--modversion", "rdkafka"]),
    }


def commit(checkout: Path) -> str:
    """Which commit a checkout is at, with a mark where its files differ from it."""
    return _first_line(["git", "-C", str(checkout), "describe", "--always", "--dirty"])


def _first_line(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return "not here"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().partition("\n")[0] or "not here"
