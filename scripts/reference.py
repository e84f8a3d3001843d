"""Write the generated pages of docs/reference, openapi.json and JSON Schemas, from the code.

With `--check` nothing is written; exit code 1 says that a page is not what the code says.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import click
import schemas

from proctor.cli.main import COMMANDS, group
from proctor.errors import EXIT_MEANING, EXIT_ORDER
from proctor.experiments.describe import parameters
from proctor.experiments.discover import find
from proctor.server.app import create_app
from proctor.server.auth.caller import SCOPES
from proctor.server.problem import CODES
from proctor.settings import Settings
from proctor.tasks.episodes import TABLES as EPISODE_TABLES
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


EPISODES = """## Step-by-step tasks

A folder with `task.toml` and `actions.py`, and without an `instruction.md`, is a step-by-step task: its
agent is asked for one action at a time. `id`, `version`, `description` and the two budgets are needed; the
other keys have defaults. How to write and run one: [step-by-step episodes](../how-to/episodes.md).

Every function of `actions.py` is an action, except `set_env(env)`, which is given the environment, names that
begin with `_`, and what is only imported. Other modules are imported as `tasks.<id>.<module>`.

| file | what is in it |
|---|---|
| `setup.py` | `setup(seed, env)` makes the environment |
| `actions.py` | the actions |
| `validate.py` | `validate(env)` judges after each action: `ok`, or not; `terminal` ends the episode |
| `environment/Dockerfile` | the image; without one and without `docker_image` any Python from 3.9 will do |

What `validate` gives may also have `message`, `failure_reason` and `failure_type`, which reports show."""


def task_format() -> str:
    """Every key and file of a task, from the table that the reader uses."""
    parts = [INTRODUCTION]
    for table, rules in TABLES.items():
        also = " and `[verifier.environment]`" if table == "[environment]" else ""
        parts += ["", f"## `{table}`{also}", "", "| key | | meaning |", "|---|---|---|"]
        parts += [f"| `{key}` | {rule.status} | {rule.meaning} |" for key, rule in rules.items()]
    parts += ["", "## Files", "", "| file | | meaning |", "|---|---|---|"]
    parts += [f"| `{name}` | {rule.status} | {rule.meaning} |" for name, rule in FILES.items()]
    parts += ["", EPISODES, "", "| key of `task.toml` | meaning |", "|---|---|"]
    for table, keys in EPISODE_TABLES.items():
        parts += [
            f"| `{table}.{key}` | {text} |" if table else f"| `{key}` | {text} |"
            for key, text in keys.items()
        ]
    return "\n".join(parts) + "\n"


def experiments() -> str:
    """The page of built-in experiments, with the table of parameters of each written anew."""
    page = (FOLDER / "experiments.md").read_text()
    return re.sub(
        r"(<!-- parameters of (\w+) -->\n).*?(<!-- end -->)",
        lambda found: found[1] + parameters_of(found[2]) + found[3],
        page,
        flags=re.DOTALL,
    )


def parameters_of(slug: str) -> str:
    """A row per parameter: default, what it may be, older names."""
    lines = ["| parameter | default | meaning |", "|---|---|---|"]
    for each in parameters(find(slug))[0].values():
        values = f" ({', '.join(f'`{choice}`' for choice in each.choices)})" if each.choices else ""
        older = f"; also `{'`, `'.join(each.aliases)}`" if each.aliases else ""
        lists = "; a list, or one value" if each.each else ""
        default = "" if each.default is None else f"`{json.dumps(each.default)}`".replace('"', "")
        lines.append(f"| `{each.name}` | {default} | {each.description}{values}{lists}{older} |")
    return "\n".join(lines) + "\n"


API = """\
# API

`proctor serve` answers under `/api`. [openapi.json](openapi.json) describes every route for programs, with
parameters, bodies and examples; a running server shows the same at `/docs`. How to begin is in
[Serve a team](../how-to/serve.md).

- JSON with names in snake_case; times are UNIX seconds. The routes of the older API have ISO 8601 with `Z`.
- Lists are `{"items": [...], "next": CURSOR}`; `limit` is 1 to 500, `cursor` is `next` of the page before.
  Lists of the older API are bare, with a `Link` header to the next page.
- A parameter that a route does not know is refused.
- Answers of `GET` have a weak `ETag`; `If-None-Match` is answered with 304.
- `Idempotency-Key` makes a change happen once: for 24 hours the same request with the same key has the same
  answer.
- A token comes as `Authorization: Bearer pt_…`, never in the address: a key or token there is refused.
- A change by session cookie, or from a page on loopback, needs the header `X-Proctor-Request: 1`.
"""


def api(spec: dict[str, object]) -> str:
    """Every route of the server, its scopes and its problems."""
    parts = [API, "## Scopes", "", "| scope | allows |", "|---|---|"]
    parts += [f"| `{name}` | {meaning} |" for name, meaning in SCOPES.items()]
    by_tag: dict[str, list[str]] = {}
    for path, item in spec["paths"].items():
        for method, found in item.items():
            row = f"| `{method.upper()} {path}` | {found['x-scope'] or 'anybody'} | {found['summary']} |"
            by_tag.setdefault(found["tags"][0], []).append(row)
    for tag, rows in by_tag.items():
        parts += ["", f"## {tag[:1].upper()}{tag[1:]}", "", "| route | scope | |", "|---|---|---|", *rows]
    parts += ["", "## Problems", "", PROBLEMS, "", "| code | status | meaning |", "|---|---|---|"]
    parts += [f"| `{code}` | {status} | {title} |" for code, (status, title) in CODES.items()]
    return "\n".join(parts) + "\n"


PROBLEMS = """\
`{"type", "title", "status", "code", "detail", "errors"}`; `detail` is a sentence for people, `errors` names
each part that is wrong as `{"where", "message"}`. Codes do not change their meaning."""


def main() -> int:
    """Write the pages, or compare them with what is there."""
    spec = create_app(Settings()).openapi()
    pages = {
        FOLDER / "api.md": api(spec),
        FOLDER / "openapi.json": json.dumps(spec, indent=1, ensure_ascii=False) + "\n",
        FOLDER / "commands.md": commands(),
        FOLDER / "experiments.md": experiments(),
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
