from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import SpecError
from proctor.verdicts.gate.rules import load_rules, metric_and_statistic, read_rules


def saved(tmp_path: Path, text: str, name: str = "gate.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_file_is_a_list_of_rules_that_know_their_lines(tmp_path):
    path = saved(
        tmp_path, "- failure_count == 0\n- no new failure reasons\n- p95 latency not slower than 5%\n"
    )
    found = load_rules(path)
    assert [rule.written.line for rule in found.rules] == [1, 2, 3]
    assert found.rules[0].written.file == str(path)
    assert found.metrics == ("duration_s",)
    assert found.needs_baseline


def test_a_file_may_name_its_baseline_and_its_rules(tmp_path):
    text = "baseline: main\nrules:\n  - rule: cost_usd <= 5\n    name: the budget\n  - failure_count == 0\n"
    found = load_rules(saved(tmp_path, text))
    assert found.baseline == "main"
    assert [rule.written.title for rule in found.rules] == ["the budget", "failure_count == 0"]
    assert not found.needs_baseline


@pytest.mark.parametrize("name", ["gate.json", "gate.toml"])
def test_other_formats_do_as_well(tmp_path, name):
    text = '{"rules": ["x <= 1"]}' if name.endswith("json") else 'rules = ["x <= 1"]\n'
    assert load_rules(saved(tmp_path, text, name)).rules[0].written.text == "x <= 1"


def test_a_slip_is_told_with_file_and_line(tmp_path):
    path = saved(tmp_path, "- failure_count == 0\n- failure_count = 0\n")
    with pytest.raises(SpecError, match=r"gate\.yaml:2: rule 'failure_count = 0': '=' is not an operator"):
        load_rules(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "there are no rules"),
        ("- 3", "found the number 3"),
        ("- rul: x <= 1", "did you mean 'rule'?"),
        ("- rule: [x]", "expected a rule"),
        ("baseline: {a: b}\nrules: [x <= 1]", "the name of a baseline"),
        ("- baseline: a\n- baseline: b\n- x <= 1", "a gate can have only one"),
        ("baseline: main", "there are no rules"),
    ],
)
def test_what_is_not_a_list_of_rules_is_refused(tmp_path, text, words):
    with pytest.raises(SpecError, match=words):
        load_rules(saved(tmp_path, text))


def test_too_many_rules_are_refused():
    with pytest.raises(SpecError, match="more than 200 rules"):
        read_rules(["x <= 1"] * 201)


def test_a_spec_holds_text_lists_and_mappings():
    for gates in (["x <= 1"], [{"rules": "x <= 1"}], [{"rules": ["x <= 1"], "baseline": "main"}]):
        assert read_rules(gates).rules[0].written.text == "x <= 1"


@pytest.mark.parametrize(
    ("rule", "speaks"),
    [
        ("failure_count <= 2", True),
        ("outcomes.agent_timeout == 0", True),
        ("no new failure reasons", True),
        ("score not worse than 3pp", True),
        ("cost_usd <= 5", False),
        ("latency not slower than 5%", False),
    ],
)
def test_a_gate_knows_whether_it_speaks_of_failures(rule, speaks):
    assert read_rules([rule]).speaks_of_failures is speaks


def test_a_path_names_a_metric_and_a_statistic():
    assert metric_and_statistic("metrics.duration_s.p95") == ("duration_s", "p95")
    assert metric_and_statistic("metrics.swaps") == ("swaps", "p50")
    assert read_rules(["metrics.a.b.p95 <= 1"]).metrics == ("a.b", "a.b.p95")
