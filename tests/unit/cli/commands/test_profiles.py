"""Settings under a name: the file, what it refers to, and what wins over what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from braidlog.cli.commands.profiles import Reference, profile_settings, read_profiles
from braidlog.cli.options import client_properties, resolve_connection
from braidlog.cli.program import build_parser, main
from braidlog.core.errors import UserError

CONTENT = """
[dev]
bootstrap.servers = ["dev:1", "dev:2"]
request.timeout.ms = 1500

[prod]
"bootstrap.servers" = "prod:1"
security.protocol = "SASL_SSL"
enable.idempotence = true
sasl.username = "alice"
sasl.password = { env = "PROD_PASSWORD" }
ssl.key.password = { file = "key" }
ssl.keystore.password = "in clear"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BRAIDLOG_PROFILE", raising=False)
    monkeypatch.delenv("BRAIDLOG_BOOTSTRAP", raising=False)
    path = tmp_path / "braidlog" / "profiles.toml"
    path.parent.mkdir()
    path.write_text(CONTENT)
    (path.parent / "key").write_text("k3y\n")
    return path


def test_dotted_names_lists_and_references(file: Path) -> None:
    profiles = read_profiles()
    assert profiles["dev"] == {"bootstrap.servers": "dev:1,dev:2", "request.timeout.ms": "1500"}
    assert profiles["prod"]["sasl.password"] == Reference("env", "PROD_PASSWORD")
    assert profiles["prod"]["enable.idempotence"] == "true"


def test_secrets_are_read_when_they_are_needed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"takes sasl\.password from \$PROD_PASSWORD, which is not set"):
        profile_settings("prod")
    monkeypatch.setenv("PROD_PASSWORD", "s3cret")
    settings = profile_settings("prod")
    assert (settings["sasl.password"], settings["ssl.key.password"]) == ("s3cret", "k3y")
    (file.parent / "key").unlink()
    with pytest.raises(UserError, match=r"takes ssl\.key\.password from .*key: No such file"):
        profile_settings("prod")


@pytest.mark.parametrize(
    ("words", "chosen", "bootstrap"),
    [
        ([], None, "environment:1"),
        ([], "dev", "dev:1,dev:2"),
        (["--profile", "dev"], "nonsense", "dev:1,dev:2"),
        (["--profile", "dev", "-X", "bootstrap.servers=x:1"], None, "x:1"),
        (["--profile", "dev", "--command-config", "FILE"], None, "file:1"),
        (["--profile", "dev", "--bootstrap", "line:1"], None, "line:1"),
    ],
)
def test_what_wins(
    file: Path, words: list[str], chosen: str | None, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIDLOG_BOOTSTRAP", "environment:1")
    if chosen is not None:
        monkeypatch.setenv("BRAIDLOG_PROFILE", chosen)
    properties = file.parent / "client.properties"
    properties.write_text("bootstrap.servers=file:1\n")
    given = [str(properties) if word == "FILE" else word for word in words]
    options = build_parser("topics").parse_args(["topics", "list", *given])
    settings = client_properties(options)
    resolve_connection(options, settings)
    assert options.bootstrap == bootstrap
    assert options.request_timeout == (1.5 if "dev" in (chosen, *words) else 30.0)


def test_a_profile_that_is_not_there(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "list", "--profile", "stage"]) == 1
    reported = capsys.readouterr().err
    assert f"there is no profile stage in {file}; it has dev, prod" in reported
    file.unlink()
    assert main(["topics", "list", "--profile", "stage"]) == 1
    assert "it has none, or is not there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ("[prod", "is not TOML"),
        ("bootstrap.servers = 'x'\n[prod]", None),
        ("acks = 1", "acks stands outside of a profile"),
        ("[prod]\nacks = 2024-01-01", "acks is neither text"),
    ],
)
def test_a_file_that_is_wrong(
    file: Path, content: str, reported: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(content)
    code = main(["profiles", "list"])
    assert code == (0 if reported is None else 1)
    if reported is not None:
        assert reported in capsys.readouterr().err


def test_secrets_are_not_shown(file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIDLOG_PROFILE", "prod")
    assert main(["profiles", "show", "prod"]) == 0
    shown = capsys.readouterr().out
    assert "in clear" not in shown
    assert "$PROD_PASSWORD" in shown
    assert "alice" in shown
    assert main(["profiles", "list"]) == 0
    head, dev, prod = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["PROFILE", "BOOTSTRAP", "SECURITY-PROTOCOL", "SETTINGS", "CHOSEN"]
    assert dev == ["dev", "dev:1,dev:2", "PLAINTEXT", "2", "no"]
    assert prod == ["prod", "prod:1", "SASL_SSL", "7", "yes"]


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("basic.auth.user.info", "(secret)"),
        ("schema.registry.basic.auth.user.info", "(secret)"),
        ("bearer.auth.token", "(secret)"),
        ("schema.registry.url", "(secret)"),
        ("ssl.keystore.key", "(secret)"),
        ("sasl.passwd", "(not shown, since no client knows this setting)"),
        ("SASL.PASSWORD", "(not shown, since no client knows this setting)"),
    ],
)
def test_what_may_be_a_secret_is_not_shown(
    file: Path, capsys: pytest.CaptureFixture[str], setting: str, shown: str
) -> None:
    file.write_text(f'[prod]\n{setting} = "http://alice:hunter2@example.com"\n')
    assert main(["profiles", "show", "prod", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"setting": setting, "value": shown}]


def test_where_a_registry_is_is_no_secret(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('[prod]\nschema.registry.url = "http://registry:8081"\n')
    assert main(["profiles", "show", "prod"]) == 0
    assert "http://registry:8081" in capsys.readouterr().out


def test_an_empty_name_is_no_profile(file: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["topics", "list", "--profile", ""])
    assert stopped.value.code == 2
