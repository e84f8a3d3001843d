"""Thousands of damaged specs and ZIPs: each must be planned or refused with a sentence, in little memory.

    python benchmarks/mutated_files.py                       20,000 specs and 2,000 ZIPs, in portions
    python benchmarks/mutated_files.py --specs 100 --zips 10

A portion is a process of its own with a limit of memory. What raises anything but a sentence is printed with
the file that did it, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
PORTION = {"specs": 1000, "zips": 250}
MOST_MB = 300
SLOW_S = 5.0
HOSTILE: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, 10**30, -(10**18), 0.5, 1e308, -1e-308, "", " ", "x", "auto",
    "random", "\x1b[31m", "é" * 300, "a" * 5000, "../../etc/passwd", "/dev/zero", "/dev/full", "/", ".",
    "/proc/self/mem", "~root", "$HOME", "${HOME}", "${X:-1}", "%s", "{0}", "nan", ".inf", "1e400", "0x10",
    "yes", "no", "null", [], {}, [[]], [{}], {"": ""}, [1, "a", None], list(range(2000)), ["x"] * 300,
    {"a": {"b": {"c": {}}}}, {"range": [0, 10**12]}, {"from": 0, "to": 10**9}, {"slug": []},
]  # fmt: skip
PIECES = [
    *"\n \t\r:-[]{},\"'#?|=\\\0é\u2028&*!%@`",
    "<<: ",
    "*a",
    "&a ",
    "!!python/object ",
    "---\n",
    "1e999",
    "[" * 300,
]
NAMES = ["../x", "/etc/x", "a\\b", "C:x", "é" * 200, "x/" * 60, "\x1b[2J", "nul\0l", "task.toml"]
FULL = {
    "name": "all", "seed": 1, "tags": ["a"], "notes": "n", "parallel": 2, "timeout_s": 5, "retries": 1,
    "gates": ["failure_count == 0"], "strategy": "random", "samples": 2,
    "experiment": "pragma_profile", "params": {"num_records": 10}, "sweep": {"num_records": [1, 2, 3]},
    "iterations": {"warmup": 1, "measured": 3}, "instrumentation": [{"name": "timing"}, "psutil"],
}  # fmt: skip
TASKS = {
    "tasks": ["TASK"], "agents": ["oracle", "nop"], "models": ["m"], "rollouts": 2, "agent_options": {},
    "overrides": {"environment_variables": {"A": "b"}, "evaluation": {"timeout_sec": 3}},
    "sandbox": {"backend": "auto", "cpus": 1, "memory_mb": 100, "network": "none"},
}  # fmt: skip


def bases() -> list[Any]:
    """The specs that are damaged: those of the repository, and two with most keys."""
    folders = (ROOT / "specs", ROOT / "tests/spec/fixtures")
    files = [file for each in folders for file in sorted(each.iterdir()) if file.is_file()]
    return [FULL, TASKS] * 4 + files + [_tree(each) for each in files]


@cache
def _tree(file: Path) -> Any:
    text = file.read_text()
    return tomllib.loads(text) if file.suffix == ".toml" else yaml.safe_load(text)


def mutate_tree(value: Any, rng: random.Random) -> Any:
    """One node replaced, removed, moved or repeated."""
    value = json.loads(json.dumps(value, default=str))
    nodes = list(_nodes(value))
    if not nodes:
        return rng.choice(HOSTILE)
    holder, key = rng.choice(nodes)
    match rng.randrange(5):
        case 0 | 1:
            holder[key] = rng.choice(HOSTILE)
        case 2:
            del holder[key]
        case 3:
            other, at = rng.choice(nodes)
            holder[key] = json.loads(json.dumps(other[at]))
        case _ if isinstance(holder, dict):
            holder[rng.choice([*FULL, *TASKS, "x", "\x1b[2J", "__class__"])] = holder.pop(key)
        case _:
            holder.append(rng.choice(HOSTILE))
    return value


def _nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a tree, as what holds it and its key or index."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _nodes(value[key])


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, added, removed or repeated."""
    for _ in range(rng.choice([1, 1, 1, 2, 6])):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                byte = rng.randrange(256) if rng.random() < 0.1 else rng.randrange(32, 127)
                data = data[:at] + bytes([byte]) + data[at + 1 :]
            case 1:
                data = data[:at] + rng.choice(PIECES).encode() + data[at + rng.randrange(6) :]
            case 2:
                data = data[:at] + data[at + rng.randrange(40) :]
            case 3:
                piece = data[at : at + rng.randrange(60)]
                data = data[:at] + piece * rng.choice([2, 3, 50]) + data[at:]
    return data


def a_spec(rng: random.Random, folder: Path) -> Path:
    """A damaged spec in a file."""
    base = rng.choice(bases())
    if isinstance(base, dict):
        tree = base
        for _ in range(rng.randint(1, 3)):
            tree = mutate_tree(tree, rng)
        text = json.dumps(tree, default=str).encode()
        suffix = rng.choice([".json", ".yaml"])
        if rng.random() < 0.3:
            text = mutate_bytes(text, rng)
    else:
        text, suffix = mutate_bytes(base.read_bytes(), rng), base.suffix
    file = folder / f"spec{suffix}"
    file.write_bytes(text.replace(b"TASK", str(folder / "task").encode()))
    return file


def a_zip(rng: random.Random, folder: Path) -> Path:
    """A ZIP of a damaged task, damaged itself."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])) as archive:
        for path in sorted((folder / "task").rglob("*")):
            if not path.is_file():
                continue
            content = path.read_bytes()
            if rng.random() < 0.3:
                content = mutate_bytes(content, rng)
            name = path.relative_to(folder / "task").as_posix()
            if rng.random() < 0.03:
                name = rng.choice(
                    ["../x", "/etc/x", "a\\b", "C:x", "é" * 200, "x/" * 60, name, "\x1b[2J", "nul\0l"]
                )
            info = zipfile.ZipInfo(name)
            special = [0o120777, 0o060600, 0o010600, 0o040755]
            info.external_attr = (rng.choice(special) if rng.random() < 0.02 else 0o100644) << 16
            with contextlib.suppress(ValueError):
                archive.writestr(info, content)
        if rng.random() < 0.05:
            archive.writestr("bomb", bytes(30 << 20))
    data = buffer.getvalue()
    file = folder / "task.zip"
    how = rng.random()
    if how < 0.3:
        data = mutate_bytes(data, rng)
    elif how < 0.8:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    file.write_bytes(data)
    return file


def portion(kind: str, seed: int, count: int) -> dict[str, Any]:
    """Try so many in this process; what was found."""
    from proctor.cli.main import main
    from proctor.errors import Exit

    rng, codes, bad = random.Random(seed), Counter[str](), []
    slowest = 0.0
    with tempfile.TemporaryDirectory(prefix="mutated-") as place:
        folder = Path(place)
        os.environ["PROCTOR_HOME"] = str(folder / "home")
        os.chdir(folder)
        with contextlib.redirect_stdout(io.StringIO()):
            main(["new", "task", "task", "--dir", str(folder / "task")])
        if not (folder / "task").is_dir():
            (folder / "tasks/task").rename(folder / "task")
        for number in range(count):
            file = a_spec(rng, folder) if kind == "specs" else a_zip(rng, folder)
            words = ["plan", str(file)] if kind == "specs" else ["plan", "-t", str(file), "-a", "oracle"]
            out, err, began = io.StringIO(), io.StringIO(), time.process_time()
            try:
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    code = main(words)
                wrong = "" if code in (0, Exit.USAGE) else f"exit code {code}: {err.getvalue()[-500:]}"
                if code and not err.getvalue().strip():
                    wrong = "refused without a word"
                if "\x1b" in out.getvalue() + err.getvalue():
                    wrong = "an escape sequence reached the terminal"
            except BaseException:  # noqa: BLE001 - what is looked for
                code, wrong = -1, traceback.format_exc()[-1500:]
            took = time.process_time() - began
            slowest = max(slowest, took)
            if took > SLOW_S:
                wrong = wrong or f"took {took:.1f} s of CPU"
            codes[str(int(code))] += 1
            if wrong:
                content = file.read_bytes()
                bad.append({"number": number, "seed": seed, "what": wrong, "file": repr(content[:2000])})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"codes": codes, "bad": bad, "peak_mb": peak, "slowest_s": slowest}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--specs", type=int, default=20_000)
    parser.add_argument("--zips", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--portion", metavar="KIND", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.portion:
        json.dump(portion(asked.portion, asked.seed, getattr(asked, asked.portion)), sys.stdout)
        return 0
    worst = 0
    for kind in ("specs", "zips"):
        worst |= _all_of(kind, getattr(asked, kind), asked.seed)
    return worst


def _all_of(kind: str, count: int, seed: int) -> int:
    codes, bad, peak, slowest = Counter[str](), [], 0.0, 0.0
    for start in range(0, count, PORTION[kind]):
        size = min(PORTION[kind], count - start)
        done = subprocess.run(
            [sys.executable, __file__, "--portion", kind, f"--{kind}={size}", f"--seed={seed + start}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            bad.append(
                {"what": f"the process ended with {done.returncode}: {done.stderr[-1500:]}", "file": ""}
            )
            continue
        found = json.loads(done.stdout)
        codes.update(found["codes"])
        bad += found["bad"]
        peak, slowest = max(peak, found["peak_mb"]), max(slowest, found["slowest_s"])
    for each in bad[:20]:
        print(f"--- {each.get('seed')}:{each.get('number')}\n{each['what']}\n{each['file']}", file=sys.stderr)
    print(
        f"{count:,} {kind}: {codes['0']:,} planned, {codes['2']:,} refused, {len(bad)} wrong; "
        f"at most {peak:.0f} MB and {slowest:.2f} s of CPU each"
    )
    return int(bool(bad) or peak > MOST_MB)


if __name__ == "__main__":
    sys.exit(main())
