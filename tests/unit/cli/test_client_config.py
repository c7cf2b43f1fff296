"""A client's settings on the command line: what wins over what, and where --config means something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.cli.command_tree import FILE, TOPIC_SETTING, commands_of
from braidlog.cli.commands.topics import _topic_config
from braidlog.cli.options import DEFAULT_BOOTSTRAP, client_properties, resolve_connection
from braidlog.cli.program import build_parser
from braidlog.client.errors import SettingError
from braidlog.client.settings import without_effect
from braidlog.core.errors import UserError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=file:1\nsasl.username=alice\nsasl.password = s3cret\nrequest.timeout.ms=1500\n")
    return path


def test_the_line_wins_over_the_file_over_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIDLOG_BOOTSTRAP", "environment:1")
    for words, bootstrap in (
        ([], "environment:1"),
        (["--config", str(file)], "file:1"),
        (["--config", str(file), "-X", "bootstrap.servers=x:1"], "x:1"),
        (["--config", str(file), "-X", "bootstrap.servers=x:1", "--bootstrap", "line:1"], "line:1"),
    ):
        options = build_parser("topics").parse_args(["topics", "list", *words])
        resolve_connection(options, client_properties(options))
        assert options.bootstrap == bootstrap
    monkeypatch.delenv("BRAIDLOG_BOOTSTRAP")
    options = build_parser("topics").parse_args(["topics", "list"])
    resolve_connection(options, client_properties(options))
    assert (options.bootstrap, options.request_timeout) == (DEFAULT_BOOTSTRAP, 30.0)


def test_the_files_timeout(file: Path) -> None:
    for words, timeout_s in (([], 1.5), (["--request-timeout", "7"], 7.0)):
        options = build_parser("groups").parse_args(["groups", "list", "--command-config", str(file), *words])
        resolve_connection(options, client_properties(options))
        assert options.request_timeout == timeout_s


def test_settings_of_file_and_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["topics", "list", "--config", str(file), "-X", "sasl.username=bob", "-Xacks=1"]
    options = build_parser("topics").parse_args(words)
    settings = client_properties(options)
    assert (settings["sasl.username"], settings["sasl.password"], settings["acks"]) == ("bob", "s3cret", "1")
    assert capsys.readouterr().err == ""


def test_a_setting_that_nobody_knows(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser("topics")
    with pytest.raises(SettingError, match=r"^-X lingr\.ms: no client knows this setting; did you mean linger\.ms\?$"):
        client_properties(parser.parse_args(["topics", "list", "-X", "lingr.ms=s3cret"]))
    # A file may serve other programs as well.
    file.write_text("sasl.usernam=s3cret\nsasl.mechanism=PLAIN\n")
    assert client_properties(parser.parse_args(["topics", "list", "--config", str(file)])) == {
        "sasl.mechanism": "PLAIN"
    }
    reported = capsys.readouterr().err
    assert reported == "braidlog: no client knows the setting sasl.usernam; did you mean sasl.username?\n"


def test_a_setting_of_kafkas_that_has_no_effect_here(capsys: pytest.CaptureFixture[str]) -> None:
    name = next(iter(without_effect()))
    options = build_parser("topics").parse_args(["topics", "list", "-X", f"{name}=1"])
    assert client_properties(options) == {}
    assert f"the setting {name} has no effect" in capsys.readouterr().err


def test_a_file_that_is_not_there() -> None:
    options = build_parser("topics").parse_args(["topics", "list", "--config", "/nowhere/client.properties"])
    with pytest.raises(UserError, match=r"/nowhere/client\.properties: No such file"):
        client_properties(options)


@pytest.mark.parametrize(
    ("words", "topic_settings", "client_file"),
    [
        (["--config", "retention.ms=5"], {"retention.ms": "5"}, None),
        (["--config", "c.p"], {}, "c.p"),
        (
            ["--config", "a=1", "--config", "c.p", "--topic-config", "b=2"],
            {"a": "1", "b": "2"},
            "c.p",
        ),
        (["--command-config", "x=y.properties", "--config", "a=1"], {"a": "1"}, "x=y.properties"),
    ],
)
def test_topics_create_tells_the_two_apart(
    words: list[str], topic_settings: dict[str, str], client_file: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.path.isfile", lambda path: path == "c.p")
    options = build_parser("topics").parse_args(["topics", "create", "orders", *words])
    assert _topic_config(options) == topic_settings
    assert options.command_config == client_file


def test_every_command_that_talks_to_a_broker_takes_a_clients_file() -> None:
    commands = [each for each in commands_of(build_parser()) if any("--bootstrap" in o.flags for o in each.options)]
    assert len(commands) >= 20
    for command in commands:
        by_flag = {flag: option for option in command.options for flag in option.flags}
        assert by_flag["--command-config"].takes is not None
        assert by_flag["--command-config"].takes.kind == FILE
        assert "-X" in by_flag, command.path
        kind = TOPIC_SETTING if command.path == ("topics", "create") else FILE
        assert by_flag["--config"].takes is not None
        assert by_flag["--config"].takes.kind == kind, command.path
