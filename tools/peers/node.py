"""Packages for Node.js programs of ours, installed once into the user's cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tools.peers.maven import PeerMissing, cache_root

INSTALL_TIMEOUT_S = 300.0


def node_modules(source: Path) -> Path:
    """The `node_modules` that `package.json` in `source` asks for; raises `PeerMissing` with the reason.

    The directory appears by a rename once it is whole.
    """
    if shutil.which("node") is None:
        raise PeerMissing(f"{source.name} needs Node.js (no `node` on the path)")
    wanted = (source / "package.json").read_bytes()
    place = cache_root() / "node-packages" / hashlib.sha256(wanted).hexdigest()[:24]
    modules = place / "node_modules"
    if modules.is_dir():
        return modules
    npm = shutil.which("npm")
    if npm is None:
        raise PeerMissing(f"the packages of {source.name} are not in the cache and there is no `npm` to fetch them")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="installing-") as scratch:
        work = Path(scratch) / "packages"
        work.mkdir()
        (work / "package.json").write_bytes(wanted)
        try:
            done = subprocess.run(
                [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"],
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=INSTALL_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise PeerMissing(f"fetching the packages took longer than {INSTALL_TIMEOUT_S:.0f} s") from None
        if done.returncode != 0 or not (work / "node_modules").is_dir():
            last = (done.stdout.strip().splitlines() or ["npm said nothing"])[-1]
            raise PeerMissing(f"the packages could not be fetched: {last[:300]}")
        if not place.is_dir():
            work.rename(place)
    return modules


def node_command(script: Path, *arguments: str) -> list[str]:
    """Run a copy of `script` beside its packages: Node.js looks for them where the script lies."""
    modules = node_modules(script.parent)
    body = script.read_bytes()
    copy = modules.parent / f"{script.stem}-{hashlib.sha256(body).hexdigest()[:12]}{script.suffix}"
    if not copy.is_file():
        with tempfile.NamedTemporaryFile(dir=modules.parent, delete=False) as whole:
            whole.write(body)
        Path(whole.name).rename(copy)
    return ["node", str(copy), *arguments]
