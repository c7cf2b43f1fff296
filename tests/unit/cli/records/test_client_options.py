from __future__ import annotations

import argparse
import logging

import pytest

from braidlog.cli.records.client_options import add_formats, client_settings, remark_on_logs

OPTIONS = argparse.Namespace(bootstrap="line:9092", request_timeout=1.5)


def test_the_line_wins_over_the_file_over_the_defaults() -> None:
    file = {"linger.ms": 7, "bootstrap.servers": "file:9092", "client.id": "mine"}
    settings = client_settings(OPTIONS, file, linger_ms=5, acks="all")
    assert settings == {
        "client.id": "mine",
        "request.timeout.ms": 1500,
        "linger.ms": 7,
        "acks": "all",
        "bootstrap.servers": "line:9092",
    }


def test_formats_of_keys_and_values_default_to_their_bytes() -> None:
    parser = argparse.ArgumentParser()
    add_formats(parser)
    options = parser.parse_args(["--value-format", "json"])
    assert (options.key_format, options.value_format) == ("raw", "json")


def test_what_a_client_logs_is_one_line_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("braidlog")
    monkeypatch.setattr(logger, "handlers", [])
    remark_on_logs()
    remark_on_logs()
    logger.warning("no broker\n  at all")
    assert capsys.readouterr().err.count("no broker at all") == 1
