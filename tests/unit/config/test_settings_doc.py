from __future__ import annotations

from tools import settings_doc


def test_the_pages_are_current() -> None:
    remedy = "run `python -m tools.settings_doc`"
    assert (settings_doc.DOCS / "SETTINGS.md").read_text() == settings_doc.settings_page(), remedy
    assert (settings_doc.DOCS / "CLIENT_SETTINGS.md").read_text() == settings_doc.client_page(), remedy
    assert (settings_doc.DOCS / "METRICS.md").read_text() == settings_doc.metrics_page(), remedy
    assert settings_doc.TYPED_SETTINGS.read_text() == settings_doc.typed_settings(), remedy


def test_no_cell_breaks_its_table() -> None:
    for page in (settings_doc.settings_page(), settings_doc.client_page(), settings_doc.metrics_page()):
        columns = 0
        for line in page.splitlines():
            if line.startswith("|---"):
                columns = line.count("|")
            elif line.startswith("|") and columns:
                assert line.count("|") == columns, line
            elif not line.startswith("|"):
                columns = 0
