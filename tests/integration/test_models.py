"""Agents reach models by the gateway alone: real sandboxes, a real store, a scripted provider."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.providers import serving

from proctor.cli.main import main
from proctor.gateway.provider.script import Fault, Script, commands
from proctor.gateway.provider.server import FakeProvider
from proctor.model.record import AttemptRecord
from proctor.settings import load_settings
from proctor.store.open import open_store

pytestmark = pytest.mark.needs("bubblewrap")
KEY = "sk-fake/key+that=nobody-may-see-0123456789"
SOLVE = ("cat question.txt", "echo hello > answer.txt")
INSIDE = """
import json, os, subprocess, sys, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
messages = [{"role": "user", "content": sys.argv[1]}]
while True:
    body = json.dumps({"model": sys.argv[2], "messages": messages}).encode()
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, body, headers))
    except urllib.error.HTTPError as error:
        print("refused", error.code, error.read().decode())
        if sys.argv[3] == "stubborn":
            continue
        sys.exit(0)
    message = json.load(answer)["choices"][0]["message"]
    messages.append(message)
    for call in message["tool_calls"]:
        if call["function"]["name"] == "finish":
            sys.exit(0)
        line = json.loads(call["function"]["arguments"])["command"]
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout + done.stderr})
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_MODEL_API_KEY", KEY)
    make_task(tmp_path / "task")
    Path("prices.toml").write_text('[models."priced"]\ninput = 1.0\noutput = 10.0\nmax_output = 100\n')
    monkeypatch.setenv("PROCTOR_PRICES", "prices.toml")
    return tmp_path


def make_task(folder: Path) -> None:
    (folder / "environment").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "instruction.md").write_text("Answer the question.")
    (folder / "task.toml").write_text('[environment]\nnetwork_mode = "no-network"\n')
    (folder / "environment/Dockerfile").write_text("FROM debian:12\nWORKDIR /app\nCOPY question.txt .\n")
    (folder / "environment/question.txt").write_text("What do you say?\n")
    (folder / "tests/test.sh").write_text(
        'test "$(cat /app/answer.txt)" = hello; echo $((1 - $?)) > /logs/verifier/reward.txt\n'
    )


@contextmanager
def provided(
    monkeypatch: pytest.MonkeyPatch, script: Script | None = None, **options: object
) -> Iterator[FakeProvider]:
    provider = FakeProvider(script or commands(*SOLVE), key=KEY, **options)
    with serving(provider) as served:
        monkeypatch.setenv("PROCTOR_MODEL_BASE_URL", served.base_url)
        yield served


class Crowd(FakeProvider):
    """Answers nobody before so many ask at the same time."""

    def __init__(self, *what: object, number: int, **more: object) -> None:
        super().__init__(*what, **more)
        self.number, self.at_work, self.most_at_work = number, 0, 0
        self.complete = asyncio.Event()

    async def _reply(self, request, route, asked, key):
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        if self.at_work == self.number:
            self.complete.set()
        try:
            async with asyncio.timeout(20):
                await self.complete.wait()
            return await super()._reply(request, route, asked, key)
        finally:
            self.at_work -= 1


def spec(agent: str = "terminal", model: str = "priced", entry: dict | None = None, **more) -> str:
    tasks = [{"path": "task", "agent": agent, "model": model, **(entry or {})}]
    retries = {"provider": 1, "backoff_s": 0}
    data = {"name": "m", "sandbox": {"host_root": True}, "retries": retries, "tasks": tasks, **more}
    Path("spec.json").write_text(json.dumps(data))
    return "spec.json"


def inside(model: str = "priced", how: str = "once", **more) -> str:
    Path("agent.py").write_text(INSIDE)
    code = base64.b64encode(INSIDE.encode()).decode()
    line = f"echo {code} | base64 -d > /tmp/a.py; python3 /tmp/a.py $instruction $model {how}"
    return spec("command", model, {"agent_options": {"command": line}}, **more)


def records(run: str = "latest") -> list[AttemptRecord]:
    with open_store(load_settings().store_url) as store:
        return [row.record for row in store.attempts(store.run(run).id)]


def sold(provider: FakeProvider) -> tuple[int, int, int]:
    total = provider.total()
    return len(provider.sales), total.prompt_tokens, total.completion_tokens


@pytest.mark.parametrize("agent", ["terminal", "command"])
def test_an_agent_solves_a_task_and_what_it_used_is_what_was_sold(project, monkeypatch, agent):
    with provided(monkeypatch) as provider:
        assert main(["run", inside() if agent == "command" else spec()]) == 0
    (record,) = records()
    usage = record.usage
    assert (record.outcome, record.reward) == ("passed", 1.0)
    assert (usage["requests"], usage["prompt_tokens"], usage["completion_tokens"]) == sold(provider)
    assert usage["cost_usd"] == pytest.approx(
        usage["prompt_tokens"] * 1e-6 + usage["completion_tokens"] * 1e-5
    )
    assert usage["models"]["priced"]["requests"] == (
        4 if agent == "terminal" else 3
    )  # it is asked to confirm
    assert "unknown_cost" not in usage
    assert "tape.jsonl.zst" in [each.name for each in record.artifacts]


def test_an_unknown_price_is_unknown_and_not_zero(project, monkeypatch, capsys):
    with provided(monkeypatch):
        assert main(["run", spec(model="cheap"), "--json"]) == 0
    (record,) = records()
    assert "cost_usd" not in record.usage
    assert record.usage["unknown_cost"] == 4
    text = capsys.readouterr().out
    assert '"unknown_cost": 4' in text


def test_a_receipt_is_verified_by_the_tape(project, monkeypatch, capsys):
    with provided(monkeypatch):
        assert main(["run", inside()]) == 0
    assert main(["receipt", "latest", "r.zip"]) == 0
    assert main(["verify", "r.zip"]) == 0
    assert "not verified" not in capsys.readouterr().out


def test_the_token_of_another_attempt_is_refused(project, monkeypatch):
    Path("nosy.py").write_text(NOSY)
    monkeypatch.syspath_prepend(str(project))
    with provided(monkeypatch):
        assert main(["run", spec("nosy:Nosy", entry={"rollouts": 2}, parallel=2)]) == 0
    said = sorted(note for record in records() for note in record.notes if note.startswith("got "))
    assert said == ["got 401", "got 401"]


NOSY = """
import asyncio
from proctor.agents.base import AgentResult

TOKENS = []
BOTH = asyncio.Event()
ASK = '''
import sys, urllib.request
request = urllib.request.Request(sys.argv[1] + "/models", headers={"x-api-key": sys.argv[2]})
try:
    print(urllib.request.urlopen(request).status)
except urllib.error.HTTPError as error:
    print(error.code)
'''


class Nosy:
    name, version, inside = "nosy", "1", True

    async def run(self, task, sandbox, model, context):
        TOKENS.append(context.access.token)
        if len(TOKENS) == 2:
            BOTH.set()
        await asyncio.wait_for(BOTH.wait(), 60)
        other = next(each for each in TOKENS if each != context.access.token)
        done = await sandbox.exec(["python3", "-c", ASK, context.access.base_url, other])
        mine = await sandbox.exec(["python3", "-c", ASK, context.access.base_url, context.access.token])
        assert mine.stdout.strip() == b"200", mine
        return AgentResult(notes=(f"got {done.stdout.decode().strip()}",))
"""


def test_a_provider_that_stumbles_is_asked_again(project, monkeypatch):
    with provided(monkeypatch, errors=[500, 429]) as provider:
        assert main(["run", spec()]) == 0
    (record,) = records()
    assert (record.outcome, record.usage["retries"], record.usage["requests"]) == ("passed", 2, 4)
    assert provider.statuses == [200, 500, 429, 200, 200, 200, 200]  # first it lists its models
    assert record.phases_s["provider_wait"] > 0


@pytest.mark.parametrize("agent", ["terminal", "command"])
def test_a_provider_that_fails_is_not_the_agents_zero(project, monkeypatch, agent):
    broke = [Fault(status=402, message="no money left", times=100)]
    with provided(monkeypatch, faults=broke):
        assert main(["run", inside() if agent == "command" else spec()]) == 4
    found = records()
    assert [each.outcome for each in found] == ["provider_error"], "it would be refused again"
    assert "answered 402: no money left" in found[0].failure.message
    assert found[0].reward is None


def test_a_model_that_does_not_exist_stops_the_run_at_its_start(project, monkeypatch, capsys):
    with provided(monkeypatch, models=["small"]) as provider:
        assert main(["run", spec(model="smal")]) == 2
        assert main(["run", inside(model="smal")]) == 2
    assert "does not take the model 'smal'; did you mean 'small'?" in capsys.readouterr().err
    assert {each.status for each in provider.sales} == {404}


def test_an_agent_and_a_provider_that_do_not_fit_are_refused_by_the_plan(project, monkeypatch, capsys):
    house = 'base_url = "http://127.0.0.1:9"\napis = ["messages"]\n'
    Path("proctor.toml").write_text(f"[providers.house]\n{house}")
    assert main(["plan", spec(model="house/large")]) == 2
    assert "agent 'terminal' speaks chat, and 'house/large' is reached by messages" in capsys.readouterr().err
    assert main(["plan", inside(model="house/large"), "--set", "tasks.0.agent_options.apis=[responses]"]) == 2
    assert "agent 'command' speaks responses" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["budget_usd", "attempt_budget_usd"])
def test_a_budget_in_dollars_without_a_price_is_refused_by_the_plan(project, monkeypatch, capsys, key):
    with provided(monkeypatch):
        assert main(["plan", spec(model="cheap", **{key: 5})]) == 2
        error = capsys.readouterr().err
        assert main(["plan", spec(**{key: 5})]) == 0
    assert "the price of 'cheap' is unknown" in error
    assert "PROCTOR_PRICES" in error


@pytest.mark.parametrize("agent", ["terminal", "command"])
def test_an_attempt_is_ended_at_its_budget_and_judged(project, monkeypatch, agent):
    with provided(monkeypatch, commands("echo hello > answer.txt", "ls", "ls")) as provider:
        many = {"attempt_budget_requests": 2}
        assert main(["run", inside(how="stubborn", **many) if agent == "command" else spec(**many)]) == 0
    (record,) = records()
    assert (record.outcome, record.reward) == ("budget_exhausted", 1.0)
    assert record.failure.message == "the attempt's budget of 2 requests is spent"
    assert len(provider.sales) == record.usage["requests"] == 2


@pytest.mark.parametrize("unit", ["tokens", "usd"])
def test_an_attempt_is_ended_at_its_budget_of_tokens_or_dollars(project, monkeypatch, unit):
    amount = {"tokens": 1300, "usd": 0.0024}[unit]  # the first call may need most of it, and uses less
    with provided(monkeypatch):
        assert main(["run", spec(**{f"attempt_budget_{unit}": amount})]) == 0
    (record,) = records()
    assert record.outcome == "budget_exhausted"
    assert 0 < record.usage["requests"] < 3


def test_eight_rollouts_at_once_under_two_dollars_are_all_scored(project, monkeypatch):
    table = "input = 1.25\noutput = 10.0\nmax_output = 128000\ncontext = 400000\n"
    Path("prices.toml").write_text(f'[models."big"]\n{table}')
    provider = Crowd(commands(*SOLVE), key=KEY, number=8)
    with serving(provider):
        monkeypatch.setenv("PROCTOR_MODEL_BASE_URL", provider.base_url)
        many = {"entry": {"rollouts": 8}, "parallel": 8, "budget_usd": 2}
        assert main(["run", spec(model="big", **many)]) == 0
    assert [each.outcome for each in records()] == ["passed"] * 8
    assert provider.most_at_work == 8


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("budget_usd", 0.0009),
        ("attempt_budget_usd", 0.0009),
        ("budget_tokens", 100),
        ("attempt_budget_tokens", 100),
        ("budget_requests", 0),
        ("attempt_budget_requests", 0),
    ],
)
def test_a_budget_under_which_no_call_fits_is_refused_by_the_plan(project, monkeypatch, capsys, key, value):
    with provided(monkeypatch) as provider:
        for command in ("plan", "run"):
            assert main([command, spec(**{key: value})]) == 2
            error = capsys.readouterr().err
            assert f"'{key}' is {value:g}, and not one call of 'priced' fits" in error
            assert "spec.json:1" in error
    assert provider.sales == []


def test_a_run_stops_at_its_budget_and_goes_on_with_a_larger_one(project, monkeypatch, capsys):
    with provided(monkeypatch) as provider:
        many = {"entry": {"rollouts": 4}, "parallel": 3, "budget_requests": 7}
        assert main(["run", spec(**many)]) == 130
        shown = capsys.readouterr()
        assert len(provider.sales) == 7
        assert "stopped: the run's budget of 7 requests is spent" in shown.err
        assert main(["resume", "latest"]) == 130
        assert len(provider.sales) == 7
        assert main(["resume", "latest", "--budget-requests", "100"]) == 0
    found = records()
    assert {each.outcome for each in found} == {"passed", "cancelled"}
    assert sum(each.outcome == "passed" for each in found) == 4
    with open_store(load_settings().store_url) as store:
        booked = store.spending.by(store.run("latest").id, "model")
    assert booked[0]["requests"] == len(provider.sales) == sum(each.usage["requests"] for each in found)


@pytest.mark.parametrize("unit", ["tokens", "usd"])
def test_a_run_stops_at_its_budget_of_tokens_or_dollars(project, monkeypatch, capsys, unit):
    amount = {"tokens": 1300, "usd": 0.0024}[unit]
    with provided(monkeypatch) as provider:
        assert main(["run", spec(**{f"budget_{unit}": amount})]) == 130
        assert len(provider.sales) < 3
        assert "stopped: the run's budget of" in capsys.readouterr().err
        assert main(["resume", "latest", f"--budget-{unit}", "1000000"]) == 0
    assert [each.outcome for each in records()] == ["cancelled", "passed"]


def test_the_budget_of_a_day_holds_for_all_runs(project, monkeypatch, capsys):
    monkeypatch.setenv("PROCTOR_DAY_BUDGET_REQUESTS", "5")
    with provided(monkeypatch) as provider:
        assert main(["run", spec()]) == 0
        assert main(["run", spec()]) == 130
    assert len(provider.sales) == 5
    assert "stopped: the day's budget of 5 requests is spent" in capsys.readouterr().err


def test_a_killed_run_does_not_get_its_budget_twice(project, monkeypatch):
    slow = commands("sleep 0.2", "sleep 0.2", *SOLVE)
    with provided(monkeypatch, slow, latency_s=0.1) as provider:
        many = {"entry": {"rollouts": 6}, "parallel": 3, "budget_requests": 12}
        command = [sys.executable, "-m", "proctor.cli.main", "run", spec(**many)]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while len(provider.sales) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert 4 <= len(provider.sales) < 12
        assert main(["resume", "latest"]) == 130
    with open_store(load_settings().store_url) as store:
        booked = store.spending.by(store.run("latest").id, "model")[0]["requests"]
    # A call whose process was killed before it was sent counts as made.
    assert booked == 12
    assert 12 - 3 <= len(provider.sales) <= 12


def test_a_replay_asks_nobody_and_comes_to_the_same_reward(project, monkeypatch, capsys):
    lines = [f"echo {number} >> steps.txt; wc -l steps.txt; date" for number in range(18)]
    with provided(monkeypatch, commands(*lines, *SOLVE)) as provider:
        assert main(["run", spec()]) == 0
        assert len(provider.sales) == 22
    monkeypatch.delenv("PROCTOR_MODEL_BASE_URL")
    assert main(["replay", "latest"]) == 0
    assert "1 of 1 as in run" in capsys.readouterr().out
    (record,) = records("m.replay")
    assert (record.outcome, record.reward, record.usage["requests"]) == ("passed", 1.0, 22)
    assert record.usage["cost_usd"] == 0
    assert len(provider.sales) == 22


def test_a_replay_needs_only_the_store_and_the_blobs(project, tmp_path_factory, monkeypatch):
    with provided(monkeypatch):
        assert main(["run", spec()]) == 0
    settings = load_settings()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name, place in (("STORE", "proctor.db"), ("BLOBS", "blobs")):
        shutil.move(getattr(settings, f"{name.lower()}_url"), elsewhere / place)
        monkeypatch.setenv(f"PROCTOR_{name}", str(elsewhere / place))
    monkeypatch.chdir(elsewhere)
    shutil.move(project, elsewhere / "hidden")
    monkeypatch.delenv("PROCTOR_MODEL_BASE_URL")
    monkeypatch.delenv("PROCTOR_PRICES")
    monkeypatch.setenv("PROCTOR_HOME", str(elsewhere / "home"))
    assert main(["replay", "latest"]) == 0
    (record,) = records("m.replay")
    assert (record.outcome, record.reward) == ("passed", 1.0)


def test_a_replay_can_be_as_slow_as_the_models_were(project, monkeypatch):
    with provided(monkeypatch, latency_s=0.1):
        assert main(["run", spec()]) == 0
    assert main(["replay", "latest", "--recorded-speed"]) == 0
    assert records("m.replay")[0].usage["worked_s"] > 0.3


def test_a_replay_names_the_first_step_that_differs(project, monkeypatch, capsys):
    with provided(monkeypatch, commands("ls", *SOLVE)):
        assert main(["run", inside()]) == 0
    monkeypatch.delenv("PROCTOR_MODEL_BASE_URL")
    Path("task/environment/question.txt").write_text("What do you sAy?\n")
    assert main(["replay", "m", "0"]) == 1
    error = capsys.readouterr().err
    assert "replay: step 3 differs from the tape: messages[4].content" in error
    assert "-What do you say?\n+What do you sAy?" in error
    (record,) = records("m.replay")
    assert (record.outcome, record.failure.type) == ("invalid", "ReplayDiverged")


def test_what_terminal_did_in_one_shell_is_repeated_in_one_shell(project, monkeypatch):
    with provided(monkeypatch, commands("cd /app; WORD=hello", "echo $WORD > answer.txt")):
        assert main(["run", spec()]) == 0
    (file,) = Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("trajectory.json")
    again = {"agent_options": {"trajectory": str(file)}}
    assert main(["run", spec("replay", None, again, name="again")]) == 0
    assert [each.outcome for each in records("again")] == ["passed"]


def test_a_tape_file_makes_a_run_free_and_offline(project, monkeypatch):
    with provided(monkeypatch):
        assert main(["run", spec()]) == 0
    monkeypatch.delenv("PROCTOR_MODEL_BASE_URL")
    tape = next(Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("tape.jsonl.zst"))
    assert main(["run", spec(name="again"), "--tape", str(tape)]) == 0
    assert main(["run", spec(name="third"), "--tape", "again"]) == 1  # a replay has no tape of its own
    assert [each.outcome for each in records("again")] == ["passed"]
    assert main(["run", spec(), "--tape", "nothing"]) == 2


def test_each_step_of_a_task_has_its_tape(project, monkeypatch):
    from tests.integration.test_rollouts import TASKS

    answers = {
        "clean": (TASKS / "two-steps/steps/clean/solution/solve.sh").read_text(),
        "answer": (TASKS / "two-steps/steps/answer/solution/solve.sh").read_text(),
    }

    def solve(asking):
        step = "answer" if "# Step 2" in asking.prompt else "clean"
        return commands(f"bash -c {shlex.quote(answers[step])}")(asking)

    many = {"tasks": [{"path": str(TASKS / "two-steps"), "agent": "terminal", "model": "priced"}]}
    with provided(monkeypatch, solve):
        assert main(["run", spec(**many)]) == 0
    (record,) = records()
    assert (record.outcome, record.usage["requests"]) == ("passed", 6)
    assert [each.name for each in record.artifacts if "tape" in each.name] == [
        "tape.jsonl.zst",
        "tape-2.jsonl.zst",
    ]
    monkeypatch.delenv("PROCTOR_MODEL_BASE_URL")
    assert main(["replay", "latest"]) == 0


def test_the_real_openai_client_works_with_what_an_agent_is_given(project, monkeypatch):
    Path("sdk_agent.py").write_text(SDK_AGENT)
    monkeypatch.syspath_prepend(str(project))
    with provided(monkeypatch):
        assert main(["run", spec("sdk_agent:SdkAgent")]) == 0
    (record,) = records()
    assert (record.outcome, record.usage["requests"]) == ("passed", 1)


SDK_AGENT = """
import openai
from proctor.agents.base import AgentResult


class SdkAgent:
    name, version, apis = "sdk", "1", ("chat",)

    async def run(self, task, sandbox, model, context):
        access = context.access
        async with openai.AsyncOpenAI(base_url=access.base_url, api_key=access.token) as client:
            reply = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": context.instruction}]
            )
        assert reply.choices[0].message.tool_calls
        await sandbox.exec(["sh", "-c", "echo hello > answer.txt"], cwd=context.workdir)
        return AgentResult()
"""
