from __future__ import annotations

from dataclasses import fields

from braidlog.config import known
from braidlog.storage.settings import RECOVERY_THREADS, StorageSettings


def test_defaults_are_those_of_the_settings_they_are_named_after() -> None:
    tables = {setting.key: setting.default for setting in known.broker_settings()}
    checked = 0
    for field in fields(StorageSettings):
        key = field.name.replace("_", ".")
        if key in tables and tables[key] is not None and field.name != "num_recovery_threads_per_data_dir":
            assert getattr(StorageSettings(), field.name) == tables[key], key
            checked += 1
    assert checked >= 8
    assert StorageSettings().num_recovery_threads_per_data_dir == RECOVERY_THREADS
