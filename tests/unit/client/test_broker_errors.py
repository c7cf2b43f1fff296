"""What is said of a broker's error: what it was about, the reason, and what to do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import braidlog
from braidlog.cli.cli_terms import in_cli_terms
from braidlog.client.broker_errors import broker_error, check
from braidlog.core.protocol_errors import (
    GroupIdNotFoundError,
    NonEmptyGroupError,
    NoReassignmentInProgressError,
    TopicAlreadyExistsError,
)


def test_our_reason_where_the_broker_gives_none() -> None:
    reported = broker_error(TopicAlreadyExistsError.code, "topic a")
    assert isinstance(reported, TopicAlreadyExistsError)
    assert reported.message == "topic a: it exists already; describe it to see whether it will do"


def test_the_brokers_reason_is_followed_by_what_to_do() -> None:
    reported = broker_error(NoReassignmentInProgressError.code, "orders-0", "Nothing moves.")
    assert reported.message == "orders-0: Nothing moves; there is nothing to cancel"
    # One that says it itself is left alone.
    reported = broker_error(GroupIdNotFoundError.code, "group g", "no such group; see the list")
    assert reported.message == "group g: no such group; see the list"


def test_a_code_without_advice() -> None:
    assert broker_error(70, "it").message == "it"
    assert broker_error(70, "it", "because").message == "it: because"
    check(0, "it")
    with pytest.raises(GroupIdNotFoundError):
        check(GroupIdNotFoundError.code, "group g")


def texts_of(path: Path) -> list[str]:
    """The strings of a module without its docstrings: what of them may be in a message."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]


# The broker's settings from the command line, which no client reads; and pip's options, in the advice how to compile.
OF_THE_COMMAND_LINE = {"config/sources.py", "core/compilation.py"}


def test_no_message_of_the_library_names_an_option_of_the_command_line() -> None:
    source = Path(braidlog.__file__).parent
    named = [
        (str(path.relative_to(source)), text)
        for package in ("client", "core", "config", "security", "wire")
        for path in sorted((source / package).rglob("*.py"))
        if str(path.relative_to(source)) not in OF_THE_COMMAND_LINE
        for text in texts_of(path)
        if re.search(r"(^|[\s(`'])(--[a-z]|-X\b)", text)
    ]
    assert named == []


def test_the_command_line_names_its_options_itself() -> None:
    reported = in_cli_terms(str(broker_error(TopicAlreadyExistsError.code, "topic a")))
    assert reported.endswith("it will do (--if-not-exists makes that no error)")
    reported = in_cli_terms(str(broker_error(NonEmptyGroupError.code, "group g")))
    assert "`braidlog groups describe --members` shows who they are" in reported
