"""The older and shorter shapes of a spec, rewritten to the one shape that the grammar reads.

Rewriting moves nodes and keeps their places, so an error in an older file still points at its own line. What
is not recognised is left alone: the grammar then names it. Running it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor.spec.node import Node, found, labelled

TOP_NAMES = {"parallelism": "parallel", "output": "output_dir", "description": "notes"}
BODY_NAMES = {"parameters": "params", "instruments": "instrumentation"}
TASK_NAMES = {"agents": "agent", "models": "model", "env": "environment_variables"}
BODY_MOVES = {
    "warmup_iterations": ("iterations", "warmup"),
    "measured_iterations": ("iterations", "measured"),
}
"""Keys that older files have at the top of a body and that are one level deeper now."""
MEGABYTES = {"memory_mb": "memory_bytes", "storage_mb": "storage_bytes"}
SYNONYMS = {
    "workers": "parallel",
    "concurrency": "parallel",
    "n_concurrent": "parallel",
    "jobs": "parallel",
    "timeout": "timeout_s",
    "timeout_sec": "timeout_s",
    "budget": "budget_usd",
    "results_dir": "output_dir",
    "grid": "sweep",
    "args": "params",
    "num_samples": "samples",
    "runs": "rollouts",
    "num_runs": "rollouts",
    "attempts": "rollouts",
    "repeats": "iterations",
    "repetitions": "iterations",
    "task_dir": "path",
    "dir": "path",
    "warmups": "warmup",
    "backend": "sandbox",
}
"""Words from other tools that are not keys here, and the key that each most likely means."""


def modernise(root: Node) -> None:
    """Rewrite a spec's tree in place to today's shape."""
    if not isinstance(root.value, dict):
        return
    rename(root, TOP_NAMES)
    _experiment_mapping(root)
    _experiment_list(root)
    _task_list(root)
    listed = root.value.get("experiments")
    bodies = listed.value if listed and isinstance(listed.value, list) else []
    for body in (root, *bodies):
        _body(body)
    _sandbox(root)
    _retries(root)


def canonical_path(path: Sequence[str]) -> list[str]:
    """The path of today's shape that an override written with older names means."""
    parts = list(path)
    start = 2 if parts[0] in {"experiments", "tasks"} and len(parts) > 2 else 0
    names = {**BODY_NAMES, **(TASK_NAMES if parts[0] == "tasks" else {}), **({} if start else TOP_NAMES)}
    if not start:
        names |= TASK_NAMES
    parts[start] = names.get(parts[start], parts[start])
    if parts[start] in BODY_MOVES:
        parts[start : start + 1] = BODY_MOVES[parts[start]]
    return parts


def rename(node: Node, names: Mapping[str, str]) -> None:
    """Give keys their present names."""
    if isinstance(node.value, dict):
        for old, new in names.items():
            if old in node.value:
                put(node, new, node.value.pop(old), old)


def put(parent: Node, key: str, item: Node, written_as: str) -> None:
    """Add an item under its current name; giving it twice, under any of its names, is an error."""
    present = parent.value.get(key)
    if present is not None and present.value is not None:
        line = f" in line {present.place.line}" if present.place.line else ""
        raise item.place.error(
            f"'{written_as}' means the same as '{key}', which is also given{line}; keep one"
        )
    parent.value[key] = item


def _experiment_mapping(root: Node) -> None:
    """`experiment: {name: slug, params: …}` is the body itself."""
    nested = root.value.get("experiment")
    if nested is None or not isinstance(nested.value, dict):
        return
    _slug(nested)
    if "experiment" not in nested.value:
        raise nested.mark.error("the experiment has no name; write 'experiment: <slug>'")
    del root.value["experiment"]
    for key, item in nested.value.items():
        put(root, key, item, key)


def _experiment_list(root: Node) -> None:
    listed = root.value.get("experiments")
    if listed is None:
        return
    if isinstance(listed.value, dict):
        listed.value = [_named_body(slug, body) for slug, body in listed.value.items()]
    if isinstance(listed.value, list):
        for at, body in enumerate(listed.value):
            if isinstance(body.value, str):
                listed.value[at] = Node({"experiment": body}, body.mark)
            _slug(listed.value[at])


def _named_body(slug: str, body: Node) -> Node:
    """`experiments: {slug: body}`: the key names the experiment."""
    if body.value is None:
        body.value = {}
    if isinstance(body.value, dict):
        put(body, "experiment", Node(slug, body.place, body.place), slug)
    return body


def _slug(body: Node) -> None:
    """A body of its own may call its experiment `slug` or `name`."""
    if isinstance(body.value, dict) and "experiment" not in body.value:
        old = next((key for key in ("slug", "name") if key in body.value), None)
        if old:
            put(body, "experiment", body.value.pop(old), old)


def _task_list(root: Node) -> None:
    listed = root.value.get("tasks")
    if listed is None:
        return
    if isinstance(listed.value, dict | str):
        listed.value = [Node(listed.value, listed.mark)]
    rename(root, TASK_NAMES)
    if isinstance(listed.value, list):
        for at, entry in enumerate(listed.value):
            if isinstance(entry.value, str):
                listed.value[at] = Node({"path": entry}, entry.mark)
            rename(entry, TASK_NAMES)


def _body(body: Node) -> None:
    if not isinstance(body.value, dict):
        return
    rename(body, BODY_NAMES)
    _iterations(body)
    _instrumentation(body)
    _nested_sweep(body)


def _iterations(body: Node) -> None:
    """A plain number is the measured count; older files have the counts at the top."""
    given = body.value.get("iterations")
    if given is not None and isinstance(given.value, int | float | str):
        measured = Node(given.value, given.mark, given.key_mark, given.text)
        body.value["iterations"] = Node({"measured": measured}, given.mark, given.key_mark)
    for old, (parent, key) in BODY_MOVES.items():
        if old not in body.value:
            continue
        item = body.value.pop(old)
        target = body.value.get(parent)
        if target is None or target.value is None:
            target = body.value[parent] = Node({}, item.mark, item.key_mark)
        if not isinstance(target.value, dict):
            raise item.place.error(f"'{old}' needs 'iterations' to be a mapping, found {found(target.value)}")
        put(target, key, item, old)


def _instrumentation(body: Node) -> None:
    """One name, a list of names or mappings, or a mapping of names to options."""
    given = body.value.get("instrumentation")
    if given is None:
        return
    if isinstance(given.value, str):
        given.value = [Node(given.value, given.mark)]
    elif isinstance(given.value, dict):
        given.value = [Node({name: item}, item.place) for name, item in given.value.items()]
    if isinstance(given.value, list):
        given.value = [_instrument(each) for each in given.value]


def _instrument(item: Node) -> Node:
    if isinstance(item.value, str):
        return Node({"name": item}, item.mark)
    if isinstance(item.value, dict) and "name" not in item.value and len(item.value) == 1:
        [(name, options)] = item.value.items()
        named = Node(name, options.place, options.key_mark)
        if options.value is None or options.value == {}:
            return Node({"name": named}, item.mark)
        return Node({"name": named, "options": options}, item.mark)
    return item


def _nested_sweep(body: Node) -> None:
    """`sweep: {strategy, samples, params: {…}}`: no axis is a mapping, so this cannot be a grid itself."""
    sweep = body.value.get("sweep")
    if sweep is None or not isinstance(sweep.value, dict):
        return
    for name in ("params", "parameters", "grid"):
        grid = sweep.value.get(name)
        if grid is not None and isinstance(grid.value, dict):
            del sweep.value[name], body.value["sweep"]
            for key, item in {**sweep.value, "sweep": grid}.items():
                put(body, key, item, key)
            return


def _sandbox(root: Node) -> None:
    sandbox = root.value.get("sandbox")
    if sandbox is None:
        return
    if isinstance(sandbox.value, str):
        sandbox.value = {"backend": Node(sandbox.value, sandbox.mark)}
    if isinstance(sandbox.value, dict):
        for old, new in MEGABYTES.items():
            item = sandbox.value.get(old)
            if item is not None and isinstance(item.value, int | float) and not isinstance(item.value, bool):
                if item.value <= 0:
                    raise labelled(item, old).mark.error(f"expected more than 0, found {item.value}")
                del sandbox.value[old]
                put(sandbox, new, Node(item.value * 1_048_576, item.mark, item.key_mark), old)


def _retries(root: Node) -> None:
    retries = root.value.get("retries")
    if retries is not None and isinstance(retries.value, int | float) and not isinstance(retries.value, bool):
        count = retries.value
        retries.value = {key: Node(count, retries.mark) for key in ("infrastructure", "provider")}
