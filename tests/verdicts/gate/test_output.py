from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from tests.render.pages import render

from proctor.render.ci import MARKER, MOST_CHARACTERS, comment, junit, workflow_commands
from proctor.render.document.markdown import plain
from proctor.render.document.terminal import lines
from proctor.render.results.gate import gate
from proctor.runfolder.files import write_json
from proctor.verdicts.gate.rules import Written
from proctor.verdicts.gate.verdict import Estimate, GateResult, GateVerdict, RuleResult

NASTY = "<script>\x07|`@team`\n::error::%"


@pytest.fixture
def mixed():
    """A gate with one rule of each verdict, and text that would like to be markup."""

    def rule(verdict, text, **more):
        written = Written(text=text, **more)
        return RuleResult(
            written=written,
            verdict=verdict,
            sentence=f"it is {verdict.value}: {NASTY}.",
            n="3 points",
            estimate=Estimate(value=1.5, low=float("-inf"), high=2.0, level=0.95, unit="ratio"),
            margin="5 %",
            change="more data",
            p_value=0.01,
            details=("sort(n=1): slow",),
        )

    return GateResult(
        results=(
            rule(GateVerdict.PASS, "a <= 1"),
            rule(GateVerdict.INCONCLUSIVE, "b <= 1", name="the b"),
            rule(GateVerdict.REGRESSION, "c <= 1", file="gate.yaml", line=3),
            rule(GateVerdict.INFRASTRUCTURE, "d <= 1", file="/abs/gate.yaml", line=4),
        ),
        label="run r-1",
        run_id="r-1",
        baseline="baseline main (x)",
        comparisons=4,
        warnings=("machine differs",),
    )


def test_people_read_the_verdict_first_and_the_bad_rules_before_the_good(mixed):
    shown = [line.text for line in lines(gate(mixed), None)]
    assert shown[0].startswith("Regression (1 of 4 rules): it is regression")
    assert "  compared with  baseline main (x)" in shown
    assert "! machine differs" in shown
    heads = [line for line in shown if line.endswith((" <= 1", "the b")) and not line[0].isspace()]
    assert heads == [
        "✗ regression: c <= 1",
        "! infrastructure: d <= 1",
        "! inconclusive: the b",
        "✓ pass: a <= 1",
    ]
    assert any("3 points; margin 5 %; p 0.01 after Holm over 4 comparisons" in line for line in shown)
    assert any("What would change it: more data" in line for line in shown)
    assert any("sort(n=1): slow" in line for line in shown)


def test_the_document_is_json_that_any_parser_reads(mixed):
    found = json.loads(json.dumps(mixed.to_dict(), allow_nan=False))
    assert (found["verdict"], found["exit_code"]) == ("regression", 1)
    assert found["precedence"][0] == "regression"
    assert [each["verdict"] for each in found["rules"]][2] == "regression"
    assert found["rules"][2]["place"] == "gate.yaml:3"
    assert found["rules"][0]["estimate"]["low"] is None


def test_junit_has_a_case_per_rule_and_holds_any_text(mixed):
    suite = ET.fromstring(junit(mixed))
    assert suite.attrib["tests"] == "4"
    assert [suite.attrib[name] for name in ("failures", "errors", "skipped")] == ["1", "1", "1"]
    kinds = [[child.tag for child in case] for case in suite.findall("testcase")]
    assert kinds == [["system-out"], ["skipped"], ["failure"], ["error"]]
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "regression: it is regression: <script>" in failure.attrib["message"]
    assert "more data" in (failure.text or "")


def test_annotations_stand_on_the_rules_line_and_cannot_be_broken_out_of(mixed):
    found = workflow_commands(mixed)
    assert [line.split(" ")[0] for line in found] == ["::warning", "::error", "::error"]
    assert found[1].startswith("::error file=gate.yaml,line=3,title=Proctor gate%3A regression%3A c <= 1::")
    assert "file=" not in found[2]
    assert all("\n" not in line for line in found)
    assert "%0A::error::%25" in found[1]


def test_a_pass_is_one_notice_and_very_many_rules_are_summed_up(mixed):
    good = replace(mixed, results=mixed.results[:1])
    assert workflow_commands(good) == ["::notice title=Proctor gate%3A pass::Pass: the rule holds."]
    many = workflow_commands(replace(mixed, results=mixed.results[2:3] * 30))
    assert len(many) == 10
    assert "21 more rules do not hold" in many[-1]


def test_a_comment_can_be_found_again_and_mentions_nobody(mixed):
    text = comment(gate(mixed))
    assert text.startswith(MARKER)
    assert "### ❌ Gate: run r-1: regression" in text
    assert "<script>" not in text
    assert "@team" not in text
    assert text.index("❌ c &lt;= 1: regression") < text.index("✅ a &lt;= 1: pass")
    assert plain("a|b_c") == r"a\|b\_c"


def test_a_comment_is_never_longer_than_is_taken(mixed):
    for count in (300, 3000):
        text = comment(gate(replace(mixed, results=mixed.results * count)))
        assert len(text) < MOST_CHARACTERS + 200
        assert "proctor gate --json" in text


def test_the_page_has_the_verdict_sentence_of_this_run_only(tmp_path, runs, mixed):
    data = runs.renamed(runs.single(), folder=str(tmp_path), id="r-1")
    assert 'id="gate"' not in render(data)
    write_json(tmp_path / "gate.json", mixed.to_dict())
    page = render(data)
    assert 'id="gate"' in page
    assert page.index('id="gate"') < page.index('id="environment"')
    assert "Regression (1 of 4 rules)" in page
    assert "<script>" not in page
    assert 'id="gate"' not in render(runs.renamed(data, id="another"))
    for wrong in ("{", '{"run_id": "r-1", "rules": 3}', '{"run_id": "r-1", "rules": [3], "sentence": "x"}'):
        (tmp_path / "gate.json").write_text(wrong)
        assert "<script>" not in render(data)


def test_agents_have_the_gate_on_their_page_too(tmp_path, runs, mixed):
    data = runs.renamed(runs.rollouts(), folder=str(tmp_path), id="r-1")
    write_json(tmp_path / "gate.json", mixed.to_dict())
    assert 'id="gate"' in render(data)
