"""The dashboard and the alert rules speak of numbers that there are; test_prometheus_peer.py runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from tools.grafana_dashboard import PATH, dashboard

from braidlog.metric_names import CATALOGUE, HISTOGRAM

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy/prometheus/braidlog.rules.yml"
METRIC = re.compile(r"\b(?:kafka|braidlog|process)_[a-z0-9_]+\b")


def expressions() -> list[str]:
    """Of all panels and alerts."""
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return [
        *(target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())),
        *(rule["expr"] for group in rules["groups"] for rule in group["rules"]),
    ]


def test_the_file_is_what_the_tool_writes() -> None:
    assert json.loads(PATH.read_text(encoding="utf-8")) == dashboard(), "run: python -m tools.grafana_dashboard"


def test_every_metric_exists() -> None:
    known = {name for name, metric in CATALOGUE.items() if metric.kind != HISTOGRAM}
    known |= {f"{name}_bucket" for name, metric in CATALOGUE.items() if metric.kind == HISTOGRAM}
    used = {name for expr in expressions() for name in METRIC.findall(expr)}
    assert len(used) > 40
    assert used - known == set()


def test_labels_that_are_grouped_by_or_selected_exist() -> None:
    of_prometheus = {"job", "instance", "le"}
    known = {label for metric in CATALOGUE.values() for label in metric.labels} | of_prometheus
    for expr in expressions():
        named = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expr) for label in group.split(",")}
        named |= set(re.findall(r'(\w+)(?:=|!=|=~)"', expr))
        assert named <= known, expr


def test_panels_have_a_place_and_a_name_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
    variables = [each["name"] for each in dashboard()["templating"]["list"]]
    assert variables == ["datasource", "job", "instance"]


def test_every_alert_says_what_to_do() -> None:
    names: list[str] = []
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            names.append(rule["alert"])
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert rule["annotations"]["summary"]
            assert rule["annotations"]["description"].endswith(".")
    assert len(set(names)) == len(names) > 20
