from __future__ import annotations

import pytest

from braidlog.broker.live_settings import LiveSettings
from braidlog.config.broker import BrokerSettings


def test_what_a_change_does_not_do_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    live = LiveSettings(BrokerSettings({"num.io.threads": "4"}))
    stored = {"background.threads": "3", "log.retention.ms": "5"}
    with caplog.at_level("INFO"):
        live.apply_dynamic(stored, {"listener.name.plaintext.ssl.client.auth": "required"})
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    (warning,) = warnings
    assert "listener.name.plaintext.ssl.client.auth has no effect (" in warning
    assert caplog.messages[-1].endswith("without effect here (docs/SETTINGS.md says why): background.threads")
    assert live.current.get("log.retention.ms") == 5
    caplog.clear()
    with caplog.at_level("INFO"):
        live.apply_dynamic(
            {**stored, "log.retention.ms": "6"}, {"listener.name.plaintext.ssl.client.auth": "required"}
        )
    assert caplog.messages == ["settings changed at run time: log.retention.ms"]
