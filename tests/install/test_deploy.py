"""The files in deploy/: every setting and command line in them is one of ours, and a broker runs with them.

There is no container runtime where these tests run; what it would do is done by hand here: the files that the image
is built from are built, and the broker gets the environment of image and compose file, with free ports.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from tools.peers.process import LoggedProcess

from braidlog.config.sources import load_settings
from support import confluent
from support.broker import READY
from support.ports import lasting_port
from support.samples import plain_samples

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BRAIDLOG = [sys.executable, "-m", "braidlog"]
SAMPLES = plain_samples(20)


def instructions() -> list[tuple[str, str]]:
    """The Containerfile's instructions, one by one."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def the(word: str) -> str:
    """The last instruction of its kind."""
    return [rest for name, rest in instructions() if name == word][-1]


def image_environment() -> dict[str, str]:
    pairs = dict(pair.split("=", 1) for pair in shlex.split(the("ENV")))
    return {name: value for name, value in pairs.items() if name.startswith("BRAIDLOG_")}


def compose_service() -> dict[str, Any]:
    service: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["broker"]
    return service


def on_lasting_ports(values: Mapping[str, str], data: Path) -> tuple[dict[str, str], dict[str, int]]:
    """The same settings with other ports, which is what publishing a port does, and another data directory."""
    ports = {port: lasting_port() for port in ("9092", "19092", "9464")}
    changed = {}
    for name, value in values.items():
        text = re.sub(r":(19092|9092|9464)\b", lambda found: f":{ports[found[1]]}", value)
        changed[name] = text.replace("/var/lib/braidlog", str(data))
    return changed, ports


@contextmanager
def serving(
    arguments: list[str], environment: Mapping[str, str], prefix: tuple[str, ...] = ()
) -> Iterator[LoggedProcess]:
    others = {name: value for name, value in os.environ.items() if not name.startswith(("BRAIDLOG_", "KAFKA_"))}
    command = [*prefix, *BRAIDLOG, *arguments]
    with LoggedProcess("braidlog", command, env={**others, **environment, "PYTHONUNBUFFERED": "1"}) as process:
        process.wait_for_line(READY)
        yield process
        assert process.terminate() == 0, process.log()


def round_trip(bootstrap: str) -> None:
    sender = confluent.producer(bootstrap)
    confluent.send(sender, "deployed", SAMPLES)
    assert confluent.as_samples(confluent.read_all(bootstrap, "deployed")) == SAMPLES


def advertised(bootstrap: str) -> list[str]:
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).brokers.values()
    return [f"{broker.host}:{broker.port}" for broker in brokers]


def test_every_setting_is_one_of_ours() -> None:
    for environment in (image_environment(), {**image_environment(), **compose_service()["environment"]}):
        assert load_settings(None, environment).warnings == []
    assert load_settings(str(DEPLOY / "server.properties")).warnings == []


def test_the_image_is_made_for_nobody_with_rights() -> None:
    assert the("USER") == "10001:10001"
    assert the("STOPSIGNAL") == "SIGTERM"
    assert the("VOLUME") == image_environment()["BRAIDLOG_LOG_DIRS"]


def copies() -> Iterator[tuple[list[str], str]]:
    """What is copied from the source tree, and where to."""
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            yield sources, target


def test_the_image_gets_what_it_copies_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == {name for sources, _ in copies() for name in sources}


def test_what_is_copied_into_the_image_is_enough_to_build_from(tmp_path: Path) -> None:
    for sources, target in copies():
        for source in sources:
            place = tmp_path / target
            if (ROOT / source).is_dir():
                ignore = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
                shutil.copytree(ROOT / source, place, ignore=ignore)
            else:
                place.mkdir(exist_ok=True)
                shutil.copy2(ROOT / source, place)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps"]
    # Uncompiled: tests/install/test_packages.py compiles.
    done = subprocess.run(
        [*pip, "--no-build-isolation", "--wheel-dir", str(tmp_path / "dist"), str(tmp_path)],
        env={**os.environ, "BRAIDLOG_PURE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert len(list((tmp_path / "dist").glob("braidlog-*.whl"))) == 1


def test_the_image_by_itself_serves_the_host(tmp_path: Path) -> None:
    environment, ports = on_lasting_ports(image_environment(), tmp_path)
    # Exec form: what the container runs is precisely this.
    assert json.loads(the("ENTRYPOINT")) == ["braidlog"]
    with serving(json.loads(the("CMD")), environment):
        host = f"127.0.0.1:{ports['9092']}"
        assert advertised(host) == [host]
        round_trip(host)
        check = json.loads(the("HEALTHCHECK").partition("CMD ")[2])
        code = check[2].replace(":9464/", f":{ports['9464']}/")
        subprocess.run([sys.executable, check[1], code], check=True, timeout=60)
    assert (tmp_path / "meta.properties").exists()


def test_the_health_check_fails_where_nothing_serves() -> None:
    check = json.loads(the("HEALTHCHECK").partition("CMD ")[2])
    code = check[2].replace(":9464/", f":{lasting_port()}/")
    assert subprocess.run([sys.executable, check[1], code], stderr=subprocess.DEVNULL, timeout=60).returncode != 0


def test_compose_serves_the_host_by_one_listener_and_its_services_by_the_other(tmp_path: Path) -> None:
    service = compose_service()
    published = dict(port.rpartition(":")[::2] for port in service["ports"])
    assert published == {"127.0.0.1:9092": "9092", "127.0.0.1:9464": "9464"}
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).resolve().is_file()
    assert service["volumes"] == [f"data:{the('VOLUME')}"]
    environment, ports = on_lasting_ports({**image_environment(), **service["environment"]}, tmp_path)
    with serving(json.loads(the("CMD")), environment):
        host = f"127.0.0.1:{ports['9092']}"
        assert advertised(host) == [host]
        round_trip(host)
        # Other services know the broker by the name that compose gives it.
        assert advertised(f"127.0.0.1:{ports['19092']}") == [f"broker:{ports['19092']}"]
        with urllib.request.urlopen(f"http://127.0.0.1:{ports['9464']}/readyz", timeout=60) as page:
            assert page.status == 200


def unit_words() -> dict[str, str]:
    lines = (DEPLOY / "braidlog.service").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def properties_in(tmp_path: Path) -> tuple[Path, dict[str, int]]:
    text, ports = on_lasting_ports({"": (DEPLOY / "server.properties").read_text()}, tmp_path / "data")
    (tmp_path / "data").mkdir()
    (tmp_path / "server.properties").write_text(text[""])
    return tmp_path / "server.properties", ports


def test_the_systemd_unit_runs_our_program(tmp_path: Path) -> None:
    program, *arguments = shlex.split(unit_words()["ExecStart"])
    assert Path(program).name == "braidlog"
    config, ports = properties_in(tmp_path)
    arguments = [str(config) if word == "/etc/braidlog/server.properties" else word for word in arguments]
    assert str(config) in arguments
    code = "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    # It does without memory that is writable and executable: MemoryDenyWriteExecute, as the kernel has it since 6.3.
    with serving(arguments, {}, (sys.executable, "-c", code)):
        round_trip(f"127.0.0.1:{ports['9092']}")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "braidlog.service"
    text = (DEPLOY / "braidlog.service").read_text()
    unit.write_text(text.replace("/opt/braidlog/bin/braidlog", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = [line for line in done.stdout.splitlines() if "braidlog" in line]
    assert said == [], done.stdout


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_a_broker_makes_no_system_call_that_the_unit_forbids(tmp_path: Path) -> None:
    config, ports = properties_in(tmp_path)
    trace = tmp_path / "trace"
    with serving(["serve", "--config", str(config)], {}, ("strace", "-D", "-f", "-qq", "-o", str(trace))):
        round_trip(f"127.0.0.1:{ports['9092']}")
    called = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE))
    assert {"accept4", "openat"} <= called
    assert called - allowed_calls(unit_words()["SystemCallFilter"]) == set()


def allowed_calls(name: str) -> set[str]:
    """The calls of a group such as @system-service, whose members may be groups."""
    listed = subprocess.run(
        ["systemd-analyze", "syscall-filter", name], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split("\n")[1:]
    words = {line.strip() for line in listed if line.strip() and not line.strip().startswith("#")}
    groups = {word for word in words if word.startswith("@")}
    return words.union(*map(allowed_calls, groups))
