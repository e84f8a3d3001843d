"""How attempts of Harbor's agents end, and whose fault that is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.harbor_stand_in import install_stand_in

from proctor.cli.main import main
from proctor.settings import load_settings
from proctor.store.open import open_store

pytestmark = pytest.mark.needs("bubblewrap")
FILES = {
    "task.toml": 'schema_version = "1.1"\n[task]\nname = "made/hello"\n',
    "instruction.md": "Write hello to /app/hello.txt.\n",
    "environment/Dockerfile": "FROM debian\nWORKDIR /app\n",
    "tests/test.sh": "#!/bin/sh\n[ -f /app/hello.txt ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n",
}
EXPECTED = {
    "raise": ("agent_error", 0.0),
    "work for ever": ("agent_timeout", 0.0),
    "fail to set up": ("invalid", None),
    "die": ("sandbox_error", None),
    "die while setting up": ("sandbox_error", None),
}


def test_only_what_the_agent_did_is_in_its_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    install_stand_in(tmp_path / "home/cache")
    for name, text in FILES.items():
        (tmp_path / "hello" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "hello" / name).write_text(text)
    entries = [{"path": "hello", "agent": "harbor:nop", "agent_options": {"does": each}} for each in EXPECTED]
    spec = {
        "name": "m",
        "sandbox": {"host_root": True, "network": "none"},
        "timeout_s": 2,
        "retries": {"infrastructure": 0},
        "parallel": 2,
        "tasks": entries,
    }
    Path("spec.json").write_text(json.dumps(spec))
    main(["run", "spec.json"])
    with open_store(load_settings().store_url) as store:
        run = store.run("latest")
        rows = list(store.attempts(run.id))
    does = list(EXPECTED)
    found = {does[row.trial.body]: (row.record.outcome.value, row.record.reward) for row in rows}
    assert found == EXPECTED
    written = [json.loads(each.read_text()) for each in Path(run.folder).rglob("trajectory.json")]
    tried = [each for each in written if any(step["message"] == "I try." for step in each["steps"])]
    assert len(tried) == 3  # those that began, however they ended
