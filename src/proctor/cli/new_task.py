"""`proctor new task`: a task that the oracle passes and nop fails, to be turned into the one you want."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from proctor.errors import Exit, UsageError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

_FILES = {
    "task.toml": """\
schema_version = "1.4"

[task]
name = "{name}"
version = "1"
description = "Sum the amounts of a ledger by account."
keywords = ["example"]

[metadata]
difficulty = "easy"

[agent]
timeout_sec = 300

[verifier]
timeout_sec = 120

[environment]
cpus = 1
memory_mb = 512
storage_mb = 512
network_mode = "no-network"
""",
    "instruction.md": """\
`/app/ledger.csv` has a line per booking below its headings: a date, an account, an amount in whole cents.

Write `/app/totals.csv`: one line per account, `account,total`, sorted by account, without headings. Leave the
ledger as it is.
""",
    "environment/Dockerfile": """\
FROM debian:bookworm-slim
WORKDIR /app
COPY ledger.csv /app/ledger.csv
""",
    "environment/ledger.csv": """\
date,account,amount
2024-01-03,rent,-95000
2024-01-04,food,-4210
2024-01-09,salary,310000
2024-01-12,food,-3875
2024-01-20,travel,-12900
2024-02-03,rent,-95000
2024-02-05,food,-5120
2024-02-09,salary,310000
""",
    "tests/test.sh": """\
#!/bin/bash
# Runs as root when the agent has gone. What is in /logs/verifier/reward.txt afterwards is the reward:
# 1 passes, 0 fails, anything between is partial.
if diff /tests/totals.csv /app/totals.csv && diff /tests/ledger.csv /app/ledger.csv; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
""",
    "tests/totals.csv": """\
food,-13205
rent,-190000
salary,620000
travel,-12900
""",
    "tests/ledger.csv": "",
    "solution/solve.sh": """\
#!/bin/bash
# The oracle runs this. It proves that the task can be done.
set -e
awk -F, 'NR > 1 {{ sum[$2] += $3 }} END {{ for (each in sum) printf "%s,%d\\n", each, sum[each] }}' \\
  /app/ledger.csv | sort > /app/totals.csv
""",
}

_SPEC = """\
# The author's solution must pass, an agent that does nothing must fail.
# Run:  proctor run {spec}
name = "{name}"
parallel = 2

# Use this machine's own system in place of debian:bookworm-slim. Without these lines the image is used.
[sandbox]
host_root = true

[[tasks]]
path = "{path}"
agent = ["oracle", "nop"]
rollouts = 2
"""


@click.command("task")
@click.argument("name")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default="tasks", show_default=True,
    help="Folder in which to make the task's folder.",
)  # fmt: skip
@click.option(
    "--specs", type=click.Path(path_type=Path), default="specs", show_default=True,
    help="Folder for the spec that proves it.",
)  # fmt: skip
def command(name: str, folder: Path, specs: Path) -> int:
    """Write a task called NAME that the oracle passes and nop fails, and a spec that shows it."""
    from proctor.cli.new import write_all

    if not _NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:64]
        hint = f"; try '{near}'" if _NAME.fullmatch(near) else ""
        raise UsageError(
            f"'{name}' is not a valid name: use a-z, 0-9, '.', '_', '-', a letter or digit first{hint}"
        )
    place, spec = folder / name, specs / f"{name}.toml"
    if place.exists() or place.is_symlink():
        raise UsageError(f"{place} exists; nothing was written. Choose another name or remove it first")
    texts = {**_FILES, "tests/ledger.csv": _FILES["environment/ledger.csv"]}
    contents = {place / path: _fill(text, name=name) for path, text in texts.items()}
    contents[spec] = _fill(_SPEC, name=name, spec=spec, path=os.path.relpath(place, specs))
    write_all(contents)
    for path in contents:
        if path.suffix == ".sh":
            path.chmod(0o755)
        print(f"wrote {path}")
    print("\nNext:")
    print(f"  proctor run {spec}        # oracle passes, nop fails")
    print(f"  proctor tasks check {place}")
    return Exit.OK


def _fill(text: str, **values: object) -> str:
    return text.format(**values)
