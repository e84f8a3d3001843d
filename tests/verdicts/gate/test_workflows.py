"""The workflow files that people copy: they parse, have the shape that servers want, and their lines run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.verdicts.gate.rules import load_rules

ROOT = Path(__file__).parent.parent.parent.parent
CI = ROOT / "deploy/ci"
SPEC = f"""
experiment: sorting
sources: {ROOT / "experiments.d"}
params: {{size: 50}}
iterations: {{measured: 3}}
"""
GH = """#!/bin/sh
echo "$*" >> "$GH_CALLS"
case "$*" in *--jq*) printf '%s' "$GH_FOUND" ;; esac
"""


@pytest.fixture(scope="module")
def github() -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    found = yaml.safe_load((CI / "github-gate.yml").read_text())
    found["on"] = found.pop(True)
    return found


@pytest.fixture(scope="module")
def gitlab() -> dict[str, Any]:
    return yaml.safe_load((CI / "gitlab-gate.yml").read_text())


def steps_of(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_the_github_workflow_has_the_shape_that_github_wants(github):
    assert set(github) <= {"name", "on", "permissions", "concurrency", "env", "jobs"}
    assert set(github["on"]) == {"pull_request"}
    assert github["permissions"] == {"contents": "read", "pull-requests": "write"}
    for job in github["jobs"].values():
        assert set(job) <= {"runs-on", "timeout-minutes", "steps"}
        assert job["timeout-minutes"] <= 60
    for step in steps_of(github):
        assert set(step) <= {"name", "id", "if", "uses", "with", "env", "run"}
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])
        # What a pull request can choose must come in through the environment, never into the script itself.
        assert "${{" not in step.get("run", "")


def test_the_gitlab_job_has_the_shape_that_gitlab_wants(gitlab):
    job = gitlab["proctor-gate"]
    assert set(job) <= {"stage", "image", "variables", "rules", "script", "allow_failure", "artifacts"}
    assert all(isinstance(line, str) for line in job["script"])
    assert job["allow_failure"] == {"exit_codes": [3]}
    assert job["artifacts"]["reports"]["junit"] in " ".join(job["script"])
    assert job["artifacts"]["when"] == "always"


def test_every_line_is_a_shell_line(github, gitlab):
    scripts = [step["run"] for step in steps_of(github) if "run" in step]
    scripts.append("\n".join(gitlab["proctor-gate"]["script"]))
    for script in scripts:
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_files_that_the_workflows_name_exist(github, gitlab):
    for variables in (github["env"], gitlab["proctor-gate"]["variables"]):
        assert (ROOT / variables["SPEC"]).is_file()
        assert load_rules(ROOT / variables["RULES"]).rules


class Project:
    """A checkout with a spec, rules, and stand-ins for the programs that need a network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir()
        self._program("pip", "#!/bin/sh\nexit 0\n")
        self._program("gh", GH)
        self._program("proctor", f'#!/bin/sh\nexec "{sys.executable}" -m proctor.cli.main "$@"\n')
        (folder / "spec.yaml").write_text(SPEC)
        self.calls = folder / "gh-calls"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SPEC": "spec.yaml",
            "RULES": "rules.yaml",
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            "GITHUB_REPOSITORY": "me/mine",
            "PR": "7",
            "GH_CALLS": str(self.calls),
            "GH_FOUND": "",
        }

    def _program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def rules(self, *lines: str) -> None:
        (self.folder / "rules.yaml").write_text("".join(f"- {line}\n" for line in lines))

    def run(self, script: str, **more: str) -> int:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail"], input=script, text=True, cwd=self.folder, check=False,
            env={**self.environment, **more}, capture_output=True, timeout=120,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        return done.returncode


@pytest.fixture
def checkout(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_github_steps_run_and_their_codes_are_the_gates(github, checkout):
    install, measure, gate, comment = (step["run"] for step in steps_of(github) if "run" in step)
    checkout.rules("failure_count == 0", "max_wall_clock_s <= 500")
    assert checkout.run(install) == 0
    assert checkout.run(measure) == 0
    assert checkout.run(gate) == 0
    assert ET.parse(checkout.folder / "gate.xml").getroot().attrib["failures"] == "0"
    assert "Gate: " in (checkout.folder / "summary.md").read_text()
    assert checkout.run(comment) == 0
    assert "--method POST repos/me/mine/issues/7/comments -F body=@gate.md" in checkout.calls.read_text()
    assert checkout.run(comment, GH_FOUND="42\n") == 0
    assert "--method PATCH repos/me/mine/issues/comments/42 -F body=@gate.md" in checkout.calls.read_text()
    checkout.rules("success_count >= 9")
    assert checkout.run(gate) == 1
    checkout.rules("no new failure reasons")
    assert checkout.run(gate) == 0
    checkout.rules("no such rule")
    assert checkout.run(gate) == 2
    written = (checkout.folder / "output").read_text().split()
    assert written == ["code=0", "code=1", "code=3", "code=2"]
    assert checkout.run(measure, SPEC="missing.yaml") == 2


def test_the_gitlab_lines_run_and_their_code_is_the_gates(gitlab, checkout):
    script = "\n".join(gitlab["proctor-gate"]["script"])
    checkout.rules("failure_count == 0")
    assert checkout.run(script) == 0
    assert (checkout.folder / "gate.md").read_text().startswith("<!-- proctor-gate -->")
    checkout.rules("no new failure reasons")
    assert checkout.run(script) == 3
    assert checkout.run(script, SPEC="missing.yaml") == 2


def test_the_rules_in_the_repository_judge_a_run_of_the_spec_beside_them(checkout):
    """Timings are not asserted: the gate may doubt them, and nothing else."""
    (checkout.folder / "rules.yaml").write_text((CI / "gate.yaml").read_text())
    script = 'proctor run "$SPEC" && proctor baseline pin spec latest --reason first && proctor run "$SPEC"'
    assert checkout.run(script) == 0
    checkout.run('proctor gate latest --rules "$RULES" --json > gate.json')
    found = json.loads((checkout.folder / "gate.json").read_text())
    assert len(found["rules"]) == 5
    certain = [each["verdict"] for each in found["rules"] if "slower" not in each["rule"]]
    assert certain == ["pass"] * 4
