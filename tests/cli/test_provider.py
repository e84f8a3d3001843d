from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

SCRIPT = '[[turns]]\ntext = "hello"\nusage = { prompt = 3, completion = 2 }\n'


def test_a_scripted_provider_serves_until_it_is_told_to_stop(tmp_path: Path):
    (tmp_path / "s.toml").write_text(SCRIPT)
    command = [sys.executable, "-m", "proctor.cli.main", "provider", "--script", tmp_path / "s.toml"]
    command += ["--ledger", tmp_path / "sold.jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
        asked = Request(f"{address}/v1/chat/completions", body, {"Content-Type": "application/json"})
        with urlopen(asked) as answer:
            assert json.load(answer)["choices"][0]["message"]["content"] == "hello"
        with urlopen(f"{address}/ledger") as answer:
            assert json.load(answer)["totals"]["prompt_tokens"] == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert json.loads((tmp_path / "sold.jsonl").read_text())["usage"]["completion_tokens"] == 2


def test_a_wrong_script_is_a_usage_error(tmp_path: Path):
    (tmp_path / "s.toml").write_text("turns = 1")
    command = [sys.executable, "-m", "proctor.cli.main", "provider", "--script", tmp_path / "s.toml"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "'turns' is a list of tables" in ended.stderr
