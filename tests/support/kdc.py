"""A Kerberos server of the test's own: MIT's, on a port of the loopback, with its database in a directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools.peers.kafka import free_port

REALM = "EXAMPLE.COM"
_SBIN = "/usr/sbin:/usr/local/sbin"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")


class Kdc:
    """`environment` is what its clients need; every principal has a keytab."""

    def __init__(self, directory: Path) -> None:
        for program in _PROGRAMS:
            if _found(program) is None:
                pytest.skip(f"no {program}; install krb5-kdc, krb5-admin-server and krb5-user")
        self._directory = directory
        self._port = free_port()
        self.config = directory / "krb5.conf"
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self._port}\n }}\n"
            f"[domain_realm]\n localhost = {REALM}\n"
        )
        profile = directory / "kdc.conf"
        profile.write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self._port}\n kdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n"
            f"  key_stash_file = {directory}/stash\n  acl_file = {directory}/acl\n }}\n"
        )
        self.environment = {"KRB5_CONFIG": str(self.config), "KRB5RCACHENAME": f"file2:{directory}/replays"}
        self._own = {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(profile)}
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    def _run(self, program: str, *arguments: str) -> None:
        command = [_found(program) or program, *arguments]
        subprocess.run(command, env=self._own, check=True, capture_output=True, timeout=120)

    def keytab(self, principal: str) -> Path:
        """A new principal."""
        file = self._directory / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "-q", f"add_principal -randkey {principal}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {file} {principal}")
        return file

    def tickets(self, principal: str, keytab: Path) -> Path:
        """A credential cache with its first ticket."""
        cache = self._directory / f"{principal}.cache"
        self._run("kinit", "-k", "-t", str(keytab), "-c", str(cache), principal)
        return cache

    @contextmanager
    def serving(self) -> Iterator[None]:
        command = [_found("krb5kdc") or "", "-n", "-r", REALM]
        with (
            (self._directory / "kdc.log").open("wb") as log,
            subprocess.Popen(command, env=self._own, stdout=log, stderr=log) as process,
        ):
            try:
                self._wait(process)
                yield
            finally:
                process.terminate()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        import socket

        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 5).close()
                return
            except OSError:
                log = (self._directory / "kdc.log").read_text()
                assert process.poll() is None, log
                assert time.monotonic() < deadline, log
                time.sleep(0.02)  # it says nothing when it is ready


def _found(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_SBIN}")
