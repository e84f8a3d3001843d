"""What a shell offers at the next word: runs, trials, spec files, agents, experiments.

A person waits for it at every press of the key, so it reads the store's file directly and imports little.
Whatever goes wrong, it offers nothing and says nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import sqlite3

    from click.shell_completion import CompletionItem

    Offer = Callable[[click.Context, str], Iterator[tuple[str, str]]]

NEWEST = 100
MOST_TRIALS = 2000
SPEC_SUFFIXES = (".yaml", ".yml", ".json", ".toml")


def with_completions(command: click.Command, name: str) -> None:
    """Give each argument and option of the command what it offers."""
    for child in command.commands.values() if isinstance(command, click.Group) else ():
        with_completions(child, f"{name} {child.name}")
    for param in command.params:
        offer = _offer_for(name, param)
        if offer:
            param._custom_shell_complete = _quiet(offer)  # noqa: SLF001 - what its constructor does too


def _offer_for(command: str, param: click.Parameter) -> Offer | None:
    names = {param.name, param.metavar, *param.opts}
    by_command: dict[tuple[str, str], Offer] = {
        ("compare", "a"): runs, ("compare", "b"): runs, ("eval", "name"): runs, ("summarize", "name"): runs,
        ("history", "series"): run_names, ("aa", "ref"): runs_and_specs, ("resume", "run"): runs,
        ("logs", "trial"): trials,
        ("replay", "trial"): trials, ("list", "slug"): experiments, ("ls", "name"): run_names,
        ("worker", "run"): runs, ("race", "baseline"): runs, ("publish", "refs"): runs,
    }  # fmt: skip
    for (owner, name), offer in by_command.items():
        if owner == command and name == param.name:
            return offer
    by_name: dict[str, Offer] = {
        "RUN": runs, "RUN...": runs, "[SPEC]": spec_files, "SPEC": spec_files,
        "--agent": agents, "-a": agents,
        "--baseline": runs,
    }  # fmt: skip
    if command == "ab" and "--a" in param.opts:
        return None
    return next((offer for name, offer in by_name.items() if name in names), None)


def _quiet(offer: Offer) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def items(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found: list[CompletionItem] = []
        with suppress(Exception):  # a traceback in the middle of someone's command line helps nobody
            for value, line in offer(context, incomplete):
                if value.startswith(incomplete) and value.isprintable():
                    found.append(CompletionItem(value, help=line))
        return found

    return items


def runs(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """`latest`, then the names of runs, then their ids, newest first."""
    yield "latest", "the newest run"
    yield from run_names(context, incomplete)
    for run_id, name, status in _recent():
        yield run_id, f"{name}, {status}"


def run_names(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:  # noqa: ARG001
    """The names of runs, newest first, each once."""
    yield from dict.fromkeys((name, "newest run of this name") for _, name, _ in _recent())


def runs_and_specs(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """For commands that take either."""
    yield from runs(context, incomplete)
    yield from spec_files(context, incomplete)


def spec_files(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Files that could be specs, and folders. A folder that is the only choice is looked into at once."""
    head, _, start = incomplete.rpartition("/")
    folder = Path(f"{head}/" if "/" in incomplete else ".")
    found = []
    for each in sorted(folder.expanduser().iterdir()):
        if not each.name.startswith(start) or (each.name.startswith(".") and not start):
            continue
        text = f"{head}/{each.name}" if "/" in incomplete else each.name
        if each.is_dir():
            found.append(f"{text}/")
        elif each.suffix in SPEC_SUFFIXES:
            found.append(text)
    if len(found) == 1 and found[0].endswith("/") and found[0] != incomplete:
        yield from spec_files(context, found[0])
        return
    for text in found:
        yield text, ""


def trials(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:  # noqa: ARG001
    """The trials of the run that the words before name, as `task/agent#rollout`, or by index."""
    store = _store()
    if store is None:
        return
    ref = str(context.params.get("ref") or "latest")
    with closing(store):
        run_id = _resolve(store, ref)
        rows = store.execute(
            "SELECT idx, kind, subject, agent, rollout, state FROM trials"
            " WHERE run_id = ? ORDER BY idx LIMIT ?",
            (run_id, MOST_TRIALS),
        ).fetchall()
    for index, kind, subject, agent, rollout, state in rows:
        if kind == "task":
            yield f"{subject}/{agent}#{rollout + 1}", f"trial {index}, {state}"
    for index, _, subject, _, _, state in rows:
        yield str(index), f"{subject}, {state}"


def agents(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:  # noqa: ARG001
    """The agents that are built in or installed."""
    from proctor.agents.registry import BUILT_IN, installed

    yield from ((name, line) for name, (_, _, line) in BUILT_IN.items())
    yield from ((entry.name, entry.value) for entry in installed())


def experiments(context: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:  # noqa: ARG001
    """The experiments that `proctor list` shows, with those of --experiments on the line."""
    from proctor.experiments.discover import discover

    for slug in discover(tuple(context.params.get("sources") or ())).experiments:
        yield slug, ""


def _recent() -> list[tuple[str, str, str]]:
    store = _store()
    if store is None:
        return []
    with closing(store):
        sql = "SELECT id, name, status FROM runs ORDER BY created_at DESC, id DESC LIMIT ?"
        return store.execute(sql, (NEWEST,)).fetchall()


def _resolve(store: sqlite3.Connection, ref: str) -> str:
    name, tilde, back = ref.rpartition("~")
    name, nth = (name, int(back)) if tilde and back.isdecimal() else (ref, 0)
    newest = "ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET ?"
    if name == "latest":
        row = store.execute(f"SELECT id FROM runs {newest}", (nth,)).fetchone()
    else:
        row = store.execute("SELECT id FROM runs WHERE id = ?", (ref,)).fetchone()
        row = row or store.execute(f"SELECT id FROM runs WHERE name = ? {newest}", (name, nth)).fetchone()
        row = row or store.execute(f"SELECT id FROM runs WHERE id >= ? {newest}", (ref, 0)).fetchone()
    return str(row[0]) if row else ""


def _store() -> sqlite3.Connection | None:
    """The store's file, read only; a server would be too slow to ask at each press of a key."""
    import sqlite3

    from proctor.settings import load_settings

    url = load_settings().store_url
    path = url.removeprefix("sqlite:///")
    if "://" in path or not os.path.exists(path):  # noqa: PTH110 - text in, text out
        return None
    return sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True, timeout=0.5)
