"""The program of a command is found by looking, before the agent begins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from proctor.agents.shell import Program, first_program, missing
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("foo --x 'a b'", "foo"),
        ("A=1 B='2 3' foo", "foo"),
        ("'my agent' x", "my agent"),
        ('"foo" x', "foo"),
        ("exec foo", "foo"),
        ("cd /app && A=1 foo", "foo"),
        ("foo | bar > x", "foo"),
        ("foo;bar", "foo"),
        ("# first\nfoo", "foo"),
        ("./agent.sh x", "./agent.sh"),
        ("if true; then x; fi", "if"),
    ],
)
def test_the_first_word_that_is_run_is_the_program(command, program):
    assert first_program(command) == Program(program)


@pytest.mark.parametrize(
    "command",
    ["", "$HOME/x", "~/x", "(foo)", "{ foo; }", "PATH=/x foo", "'open", "f() { x; }; f", "cd /a && ./x"],
)
def test_what_only_the_shell_can_tell_is_not_guessed(command):
    assert first_program(command) is None


@pytest.mark.parametrize(
    ("command", "script"),
    [("python3 a.py", "a.py"), ("bash 'a b.sh' x", "a b.sh"), ("python3 -m a", ""), ("cd /a && sh x", "")],
)
def test_the_script_of_an_interpreter_is_known(command, script):
    found = first_program(command)
    assert found is not None
    assert found.script == script


SCRIPTS = {
    "good": ("#!/bin/sh\n", 0o755),
    "no-shebang": ("true\n", 0o755),
    "closed": ("#!/bin/sh\n", 0o644),
    "lost": ("#!/no/such/thing\n", 0o755),
    "lost-env": ("#!/usr/bin/env no-such-thing\n", 0o755),
    "good-env": ("#!/usr/bin/env sh\n", 0o755),
}


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (Program("sh"), ""),
        (Program("cd"), ""),
        (Program("if"), ""),
        (Program("./good"), ""),
        (Program("./no-shebang"), ""),
        (Program("./good-env"), ""),
        (Program("sh", "good"), ""),
        (Program("no-such-agent"), "there is no program 'no-such-agent' in the sandbox"),
        (Program("./nothing"), "'./nothing'"),
        (Program("./closed"), "'./closed'"),
        (Program("./lost"), "'./lost' needs '/no/such/thing'"),
        (Program("./lost-env"), "'./lost-env' needs 'no-such-thing'"),
        (Program("sh", "nothing.sh"), "there is no file 'nothing.sh'"),
    ],
)
async def test_a_sandbox_is_asked_for_the_program(tmp_path: Path, program, said):
    for name, (text, mode) in SCRIPTS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)

    def on_this_machine(command: FakeCommand) -> FakeResult:
        ended = subprocess.run(command.argv, cwd=tmp_path, capture_output=True, check=False)
        return FakeResult(exit_code=ended.returncode, stdout=ended.stdout)

    sandbox = Fake(handler=on_this_machine).sandbox(SandboxRequest(name="look", root=Root()))
    await sandbox.start()
    found = await missing(sandbox, program, env={}, cwd="/", user=None)
    assert said in found if said else found == ""
