"""Write commands.md, settings.md and task-format.md of docs/reference, and JSON Schemas, from the code.

With `--check` nothing is written; exit code 1 says that a page is not what the code says.
"""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import click
import schemas

from proctor.cli.main import COMMANDS, group
from proctor.errors import EXIT_MEANING, EXIT_ORDER
from proctor.settings import Settings
from proctor.tasks.toml_file import FILES, TABLES

FOLDER = Path(__file__).parent.parent / "docs/reference"
SCHEMAS = Path(__file__).parent.parent / "src/proctor/runfolder/schemas"


def commands() -> str:
    """Every command with its own help."""
    parts = ["# Commands", "", "| command | what it does |", "|---|---|"]
    parts += [f"| `proctor {name}` | {line} |" for name, line in COMMANDS.items()]
    parts += ["", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    parts += [f"| {int(code)} | {meaning} |" for code, meaning in EXIT_MEANING.items()]
    parts += ["", EXIT_ORDER]
    context = click.Context(group, info_name="proctor", **group.context_settings)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        parts += ["", f"## proctor {name}", "", "```text", help_of(command, context, name), "```"]
        if isinstance(command, click.Group):
            inner = click.Context(command, parent=context, info_name=name)
            for child in command.list_commands(inner):
                found = command.get_command(inner, child)
                assert found is not None
                parts += ["", "```text", help_of(found, inner, child), "```"]
    return "\n".join(parts) + "\n"


def help_of(command: click.Command, parent: click.Context, name: str) -> str:
    """What `--help` prints, at a fixed width."""
    context = click.Context(command, parent=parent, info_name=name, terminal_width=100)
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def settings() -> str:
    """Every setting with its default and its documentation."""
    tree = ast.parse(inspect.getsource(Settings)).body[0]
    assert isinstance(tree, ast.ClassDef)
    docs = {}
    for field, doc in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(doc, ast.Expr)
            and isinstance(doc.value, ast.Constant)
        ):
            docs[getattr(field.target, "id", "")] = " ".join(str(doc.value.value).split())
    parts = [
        "# Settings",
        "",
        "Read from the environment, or from `proctor.toml` in the working folder (`PROCTOR_SETTINGS` names",
        "another file) under the name in small letters without the prefix. The environment wins.",
        "",
        "| variable | default | meaning |",
        "|---|---|---|",
    ]
    for each in fields(Settings):
        plain = "" if each.default is MISSING else str(each.default)
        shown = f"`{plain}`" if plain else "empty"
        parts.append(f"| `PROCTOR_{each.name.upper()}` | {shown} | {docs.get(each.name, '')} |")
    return "\n".join(parts) + "\n"


INTRODUCTION = """# Task format

What Proctor does with every key and file of Harbor's task format (Harbor 0.25, schema 1.0 to 1.4). *Honoured*
means that a run depends on it; *refused* that a task which asks for it is read and not run, with the reason;
*irrelevant* that no run depends on it. A key that is in none of these tables is a warning with its line and
the nearest name. How to write a task: [write a task](../how-to/write-a-task.md).

Where Proctor differs from Harbor on purpose:

- An agent without `[agent] timeout_sec` has 600 s; in Harbor it has no limit.
- A step without `[steps.verifier] timeout_sec` takes the task's; in Harbor it has 600 s.
- Everything that the agent left running is ended before the tests arrive.
- A step that cannot begin because of what the agent did earlier counts as 0; in Harbor it does not count.
  Steps after one below its `min_reward` do not count, as in Harbor.
- A reward is a number from 0 to 1; see [outcomes](outcomes.md).
- A dataset may sort its tasks into folders of categories; in Harbor all tasks are directly in it.

Inside the sandbox the agent may leave files to keep in `/logs/artifacts`; the tests write
`/logs/verifier/reward.json` or `reward.txt`."""


def task_format() -> str:
    """Every key and file of a task, from the table that the reader uses."""
    parts = [INTRODUCTION]
    for table, rules in TABLES.items():
        also = " and `[verifier.environment]`" if table == "[environment]" else ""
        parts += ["", f"## `{table}`{also}", "", "| key | | meaning |", "|---|---|---|"]
        parts += [f"| `{key}` | {rule.status} | {rule.meaning} |" for key, rule in rules.items()]
    parts += ["", "## Files", "", "| file | | meaning |", "|---|---|---|"]
    parts += [f"| `{name}` | {rule.status} | {rule.meaning} |" for name, rule in FILES.items()]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Write the pages, or compare them with what is there."""
    pages = {
        FOLDER / "commands.md": commands(),
        FOLDER / "settings.md": settings(),
        FOLDER / "task-format.md": task_format(),
        **{SCHEMAS / f"{name}.json": schemas.schema(name) for name in schemas.NAMES},
    }
    if "--check" in sys.argv[1:]:
        stale = [page.name for page, text in pages.items() if not page.exists() or page.read_text() != text]
        if stale:
            print(f"not what the code says: {', '.join(stale)}; run `make docs`")
        return int(bool(stale))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for page, text in pages.items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
