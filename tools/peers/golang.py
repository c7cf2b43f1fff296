"""Go programs of ours with their modules, built once into the user's cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tools.peers.maven import PeerMissing, cache_root

# The first build compiles Go's standard library, too.
BUILD_TIMEOUT_S = 600.0


def go_program(source: Path) -> Path:
    """The executable built from the module in `source`; raises `PeerMissing` with the reason.

    It is named by the digest of its sources (`go.sum` pins what it uses) and appears by a rename once it is whole.
    """
    files = sorted(path for path in source.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + path.read_bytes())
    program = cache_root() / "go-programs" / digest.hexdigest()[:24]
    if program.is_file():
        return program
    go = shutil.which("go")
    if go is None:
        raise PeerMissing(f"no `go` to build {source.name} with")
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent, prefix="building-") as scratch:
        # Built from a copy, so that a tool chain that rewrites go.mod does not touch ours.
        for path in files:
            shutil.copy(path, scratch)
        try:
            done = subprocess.run(
                [go, "build", "-mod=readonly", "-buildvcs=false", "-o", "program", "."],
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise PeerMissing(f"building {source.name} took longer than {BUILD_TIMEOUT_S:.0f} s") from None
        if done.returncode != 0:
            _raise_for(source, done.stderr)
        (Path(scratch) / "program").rename(program)
    return program


def _raise_for(source: Path, said: str) -> None:
    """A module or tool chain that cannot be had is a missing peer; a program that does not compile is our fault."""
    if ".go:" in said and "no required module" not in said:
        raise RuntimeError(f"go build {source.name}:\n{said}")
    last = (said.strip().splitlines() or ["go said nothing"])[-1]
    raise PeerMissing(f"{source.name} could not be built: {last[:300]}")
