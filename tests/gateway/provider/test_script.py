from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import UsageError
from proctor.gateway.apis import Api
from proctor.gateway.provider.script import Asking, Fault, Scenario, Tool, Turn, load
from proctor.gateway.usage import Usage

TOML = """
models = ["small"]
[keys]
alice = "sk-1"
[[turns]]
text = "first"
tools = [{ name = "shell", arguments = { command = "ls" } }]
usage = { prompt = 9, completion = 3, cached = 2 }
[[turns]]
when = "help(less)?$"
text = "no"
fault = { chunk_s = 0.5, times = 2 }
[[faults]]
status = 429
retry_after_s = 2
key = "alice"
"""
WANTED = Scenario(
    models=("small",),
    keys={"alice": "sk-1"},
    turns=(
        Turn(
            text="first",
            tools=(Tool(name="shell", arguments={"command": "ls"}),),
            usage=Usage(prompt_tokens=9, completion_tokens=3, cached_tokens=2),
        ),
        Turn(text="no", when="help(less)?$", fault=Fault(chunk_s=0.5, times=2)),
    ),
    faults=(Fault(status=429, retry_after_s=2, key="alice"),),
)
JSON = """{"models": ["small"], "keys": {"alice": "sk-1"}, "turns": [
  {"text": "first", "tools": [{"name": "shell", "arguments": {"command": "ls"}}],
   "usage": {"prompt": 9, "completion": 3, "cached": 2}},
  {"text": "no", "when": "help(less)?$", "fault": {"chunk_s": 0.5, "times": 2}}],
 "faults": [{"status": 429, "retry_after_s": 2, "key": "alice"}]}"""


@pytest.mark.parametrize(("name", "text"), [("s.toml", TOML), ("s.json", JSON), ("s.yaml", JSON)])
def test_a_script_is_toml_json_or_yaml(tmp_path: Path, name: str, text: str):
    (tmp_path / name).write_text(text)
    assert load(tmp_path / name) == WANTED


def test_patterns_come_first_and_then_the_order_of_the_conversation():
    def said(last: str, turn: int) -> str:
        asking = Asking(api=Api.CHAT, model="m", streamed=False, turn=turn, last=last, prompt="", body={})
        return WANTED.script()(asking).text

    assert [said("go", 0), said("I am helpless", 0), said("go", 1)] == ["first", "no", "Done."]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("s.toml", "x", "not valid TOML"),
        ("s.json", "{", "not valid JSON"),
        ("s.yaml", "a: [", "not valid YAML"),
        ("s.yaml", "- a", "is not a table"),
        ("s.toml", "turn = 1", "'turn' is not known here"),
        ("s.toml", "turns = 1", "'turns' is a list"),
        ("s.toml", "keys = { a = 1 }", "'keys' is a table"),
        ("s.toml", "[[turns]]\nwhen = '('", "turn 1: 'when' is not a pattern"),
        ("s.toml", "[[turns]]\nusage = { promt = 1 }", "turn 1: usage: 'promt' is not known"),
        ("s.toml", "[[turns]]\ntools = [{}]", "turn 1: .*name"),
        ("s.toml", "[[faults]]\nstate = 1", "fault 1: 'state' is not known"),
    ],
)
def test_a_wrong_script_says_where(tmp_path: Path, name: str, text: str, said: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=said):
        load(tmp_path / name)
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "none.toml")
