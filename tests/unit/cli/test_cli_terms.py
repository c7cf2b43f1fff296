from __future__ import annotations

from braidlog.cli.cli_terms import in_cli_terms


def test_settings_become_options_and_other_words_stay() -> None:
    assert in_cli_terms("no broker at x; set bootstrap.servers") == "no broker at x; set --bootstrap"
    assert "(--request-timeout gives it longer)" in in_cli_terms("no answer in 5 s (request.timeout.ms)")
    assert in_cli_terms("nothing to say") == "nothing to say"
