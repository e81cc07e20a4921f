"""The alert rules: parsed, tested by Prometheus' own tool, and about what the service says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.telemetry.observed import Observed
from tests.telemetry.promql import PROMTOOL, check, names_in, needs_promtool

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "grafana"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
TESTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]


@needs_promtool
def test_every_rule_parses() -> None:
    said = check("alerts.yaml", folder=str(FOLDER))
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{len(RULES)} rules found" in said.stdout


@needs_promtool
def test_the_rules_pass_their_own_tests() -> None:
    command = [str(PROMTOOL), "test", "rules", "alerts_test.yaml"]
    said = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


@needs_promtool
@pytest.mark.parametrize(
    ("sound", "broken"),
    [
        ("< 0.8", "< 0.7"),
        ("for: 5m", "for: 20m"),
        ("> 0.2", "> 0.05"),
        ("14.4 *", "140 *"),
        ("absent(", "sum by (job) ("),
    ],
)
def test_those_tests_can_fail(sound: str, broken: str, tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text((FOLDER / "alerts.yaml").read_text().replace(sound, broken))
    (tmp_path / "alerts_test.yaml").write_text((FOLDER / "alerts_test.yaml").read_text())
    command = [str(PROMTOOL), "test", "rules", "alerts_test.yaml"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.returncode == 1


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_asks_only_for_what_the_service_emits(rule: dict[str, Any], observed: Observed) -> None:
    for metric, matchers in names_in(rule["expr"]).metrics.items():
        if metric in RECORDED:
            continue
        labels = observed.labels_of(metric)
        assert labels, f"{metric} is not emitted"
        for label, operator, value in matchers:
            assert label in labels
            if operator in {"=", "!="}:
                assert value in labels[label], (metric, label, value)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_is_tested_both_ways_and_says_what_to_do(rule: dict[str, Any]) -> None:
    told = [
        case["exp_alerts"] for test in TESTS for case in test["alert_rule_test"] if case["alertname"] == rule["alert"]
    ]
    assert any(told)
    assert not all(told)
    path, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_alerts_that_were_asked_for_are_there() -> None:
    waits = {rule["alert"]: rule["for"] for rule in ALERTS}
    assert waits["ArbiterJudgeCoverageLow"] == "15m"
    assert waits["ArbiterBreakerOpen"] == "5m"
    assert {
        "ArbiterDegradedShareHigh",
        "ArbiterErrorBudgetBurnFast",
        "ArbiterErrorBudgetBurnSlow",
        "ArbiterNoData",
    } <= set(waits)


def test_compose_gives_prometheus_the_rules_and_grafana_the_dashboards() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    loaded = yaml.safe_load((FOLDER / "collector" / "prometheus.yml").read_text())["rule_files"]
    mounts = [mount.split(":") for name in ("prometheus", "grafana") for mount in compose["services"][name]["volumes"]]
    by_target = {mount[1]: mount[0] for mount in mounts}
    assert by_target[loaded[0]] == "./docs/grafana/alerts.yaml"
    provider = yaml.safe_load((FOLDER / "provisioning" / "dashboards" / "dashboards.yaml").read_text())["providers"][0]
    assert by_target[provider["options"]["path"]] == "./docs/grafana/dashboards"
    assert all((ROOT / mount[0]).exists() for mount in mounts if mount[0].startswith("./"))
