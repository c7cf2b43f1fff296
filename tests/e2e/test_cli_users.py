"""SCRAM users from the command line; what logs in with them is in tests/interop/test_logins.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.broker import Broker


@pytest.fixture
def user(broker: Broker, topic: str) -> str:
    if broker.is_kafka:
        pytest.skip("Kafka's own users are tried with its own tools")
    return f"{topic} & co"


def rows(cli: Any, user: str) -> Any:
    return cli("users", "list", user, "--output", "json").succeeded().json


def test_a_users_life(cli: Any, user: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first\nnot this\n")
    file = ("--password-file", str(secret))
    assert f"user {user} created (SCRAM-SHA-512)" in cli("users", "create", user, *file).succeeded().out
    cli("users", "create", user, *file).failed("`braidlog users alter` changes it")
    cli("users", "create", user, "--mechanism", "SCRAM-SHA-256", "--iterations", "8192", *file).succeeded()
    assert rows(cli, user) == [
        {"user": user, "mechanism": "SCRAM-SHA-256", "iterations": 8192},
        {"user": user, "mechanism": "SCRAM-SHA-512", "iterations": 4096},
    ]
    cli.environment["SECOND"] = "second"
    cli("users", "alter", user, "--password-env", "SECOND").succeeded()
    cli("users", "delete", user, "--mechanism", "SCRAM-SHA-256").succeeded()
    assert [row["mechanism"] for row in rows(cli, user)] == ["SCRAM-SHA-512"]
    cli("users", "alter", user, "--mechanism", "SCRAM-SHA-256", *file).failed("`braidlog users create` gives it one")
    cli("users", "delete", user).succeeded()
    cli("users", "delete", user).failed("it has: none")
    cli("users", "delete", user, "--if-exists").succeeded()
    cli("users", "list", user).failed("does not exist")


def test_a_password_that_is_not_there(cli: Any, user: str, tmp_path: Path) -> None:
    cli("users", "create", user).failed("give --password-file FILE or --password-env NAME")
    cli("users", "create", user, "--password-env", "NO_SUCH_VARIABLE").failed("the password is empty")
    cli("users", "create", user, "--password-file", str(tmp_path / "none")).failed("No such file")
    cli("users", "create", user, "--password-env", "X", "--iterations", "100").failed("iterations", 2)
