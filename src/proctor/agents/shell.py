"""Run one command for an agent, its output in the log; and tell, before it begins, whether a sandbox can.

The exit code of an agent proves nothing about its program: an agent that has failed can end with 127 too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proctor.agents.base import AgentContext, BudgetExhausted
from proctor.sandbox.base import Before, ExecResult, Sandbox, exec_after
from proctor.sandbox.time_limit import Seconds

LONGEST_ARGUMENT = 100_000
"""The kernel takes 128 KiB in an argument or a variable; what else stands in one has room."""
_OBSERVED_BYTES = 32_000


async def run_shell(
    sandbox: Sandbox,
    context: AgentContext,
    script: str | list[str],
    *,
    log: str,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout_s: Seconds | None = None,
    copies: Sequence[tuple[Path, str]] = (),
    stdin: bytes | None = None,
) -> tuple[ExecResult, str]:
    """The result, and its output as a reader would quote it. Output beyond the agent's limit ends it.

    A list is run as it is; a text is a script for the shell. `copies` are uploaded first.
    """
    seen = 0
    too_much = False

    def on_output(_: Literal["stdout", "stderr"], data: bytes) -> None:
        nonlocal seen, too_much
        seen += len(data)
        if seen <= context.limits.output_bytes:
            context.log(log, data)
        else:
            too_much = True

    result = await exec_after(
        sandbox,
        Before(copies=copies),
        ["/bin/sh", "-c", script] if isinstance(script, str) else script,
        env={**context.env, **(env or {})},
        cwd=cwd or context.workdir,
        user=context.user,
        stdin=stdin,
        timeout_s=timeout_s,
        on_output=on_output,
        keep_bytes=_OBSERVED_BYTES,
    )
    if too_much:
        raise BudgetExhausted(f"more than {context.limits.output_bytes} bytes of output")
    text = (result.stdout + result.stderr).decode(errors="replace")
    return result, text


_LOOKUP_TIMEOUT_S = 30.0
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_WORDS = re.compile(
    r"""(?P<aside>\s+|\#[^\n]*)
    | (?:'[^']*' | "(?:\\.|[^"\\])*" | \\. | [^\s'"\\;&|<>()])+ | [;&|<>()]+ | .""",
    re.DOTALL | re.VERBOSE,
)
"""Comments and gaps, words, operators, and what is none of them: a quote that never ends."""
_PLAIN = re.compile(r"[\w./+@%:,~=-]+")
"""Words that the shell takes as they are written."""
_INTERPRETER = re.compile(r"(ba|da|z|k)?sh|python[\d.]*|node|perl|ruby")
_LOOKUP = r"""
found=$(command -v "$1") || exit 127
case $found in
*/*) [ -x "$found" ] && [ ! -d "$found" ] || exit 126
    IFS= read -r line <"$found"
    case $line in
    '#!'*) set -f; want=$1 script=$2; set -- ${line#??}
        [ -x "$1" ] || { echo "$1"; exit 125; }
        case ${1##*/}:${2:-} in env:[A-Za-z]*)
            case $2 in *=*) ;; *) command -v "$2" >/dev/null || { echo "$2"; exit 125; } ;; esac ;;
        esac
        set -- "$want" "$script" ;;
    esac ;;
esac
[ -z "$2" ] || [ -e "$2" ] || command -v "$2" >/dev/null || exit 124
"""
"""Exit 127: no such program; 126: it cannot be executed; 125: its interpreter, which is printed, is missing;
124: the script that it is to interpret is missing. Word lists of the shell (builtins, keywords) are found."""


@dataclass(frozen=True, slots=True)
class Program:
    """What a command begins with."""

    name: str
    script: str = ""
    """The file that it interprets, where the command is an interpreter with a file."""


def first_program(command: str) -> Program | None:
    """The program of a shell command; None where only the shell can tell, after an expansion for example."""
    words = [each[0] for each in _WORDS.finditer(command) if not each["aside"]]
    moved = False
    while words and (_ASSIGNED.match(words[0]) or words[0] in {"cd", "exec"}):
        if words[0].startswith("PATH="):
            return None
        at = 1
        if words[0] == "cd":
            moved, at = True, words.index("&&") + 1 if "&&" in words else len(words)
        words = words[at:]
    name = _unquoted(words[0]) if words else None
    if not name or words[1:2] == ["()"] or (moved and "/" in name):
        return None
    script = _unquoted(words[1]) if len(words) > 1 and not moved else None
    if not script or script.startswith("-") or not _INTERPRETER.fullmatch(name.rpartition("/")[2]):
        script = ""
    return Program(name, script)


def _unquoted(word: str) -> str | None:
    """A word without its quotes; None when it holds more than plain text."""
    if len(word) > 1 and word[0] == word[-1] == "'":
        return word[1:-1] if "'" not in word[1:-1] else None
    if len(word) > 1 and word[0] == word[-1] == '"':
        return word[1:-1] if _PLAIN.fullmatch(word[1:-1]) else None
    return word if _PLAIN.fullmatch(word) and not word.startswith("~") else None


async def missing(
    sandbox: Sandbox, program: Program, *, env: Mapping[str, str], cwd: str, user: str | None
) -> str:
    """What a sandbox lacks to run a program, as the rest of a sentence; empty when it is there."""
    result = await sandbox.exec(
        ["/bin/sh", "-c", _LOOKUP, "sh", program.name, program.script],
        env=env,
        cwd=cwd,
        user=user,
        timeout_s=_LOOKUP_TIMEOUT_S,
        keep_bytes=4096,
    )
    match result.exit_code:
        case 127:
            return f"there is no program '{program.name}' in the sandbox"
        case 126:
            return f"the program '{program.name}' in the sandbox cannot be executed"
        case 125:
            needed = result.stdout.decode(errors="replace").strip()
            return f"the program '{program.name}' needs '{needed}', which the sandbox does not have"
        case 124:
            return f"there is no file '{program.script}' in the sandbox for '{program.name}' to run"
    return ""
