"""Whatever stands in a file, the answer is a spec or a SpecError, and never anything else."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.errors import SpecError
from proctor.spec import bodies, dialects, grammar
from proctor.spec.load import from_mapping, load

FIXTURES = sorted((Path(__file__).parent / "fixtures").iterdir())
WORDS = ["&a ", "*a", "<<: ", "!!int ", "0x", "1e9", ".inf", "'''", '"""', "---\n"]
PIECES = [*"\n \t\r:-[]{},\"'#?|=\\\0é\u2028", *WORDS]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FIXTURES), st.data())
def test_a_damaged_file_loads_or_is_refused(tmp_path: Path, path: Path, data: st.DataObject) -> None:
    text = path.read_text()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        stop = min(len(text), start + data.draw(st.integers(0, 6)))
        text = text[:start] + data.draw(st.sampled_from(PIECES)) + text[stop:]
    damaged = tmp_path / f"damaged{path.suffix}"
    damaged.write_bytes(text.encode())
    with contextlib.suppress(SpecError):
        load(damaged)


KEYS = sorted(
    {
        *grammar.SHARED_KEYS,
        *bodies.EXPERIMENT_KEYS,
        *bodies.TASK_KEYS,
        *dialects.TOP_NAMES,
        *dialects.BODY_NAMES,
        *dialects.BODY_MOVES,
        *dialects.TASK_NAMES,
        *(
            "experiments",
            "tasks",
            "name",
            "slug",
            "options",
            "measured",
            "warmup",
            "grid",
            "backend",
            "memory_mb",
        ),
    }
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(-1, 1e3)
    | st.sampled_from(["", "a", "auto", "random"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=15,
)
BODY = st.sampled_from(["experiment", "experiments", "tasks"])


@settings(max_examples=200)
@given(BODY, VALUES, st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4))
def test_known_keys_with_any_values_load_or_are_refused(
    body: str, value: Any, others: dict[str, Any]
) -> None:
    try:
        spec = from_mapping({**others, body: value})
    except SpecError:
        return
    assert from_mapping(json.loads(json.dumps(spec.to_mapping()))) == spec


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([*KEYS, "0", "1", "x"]), min_size=1, max_size=4), VALUES)
def test_any_override_is_applied_or_refused(tmp_path: Path, path: list[str], value: Any) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "experiments: [a, {experiment: b, iterations: 3, instrumentation: [timing]}]\nsandbox: x\n"
    )
    with contextlib.suppress(SpecError):
        load(file, overrides=[f"{'.'.join(path)}={json.dumps(value)}"])


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_a_file_cut_anywhere_loads_or_is_refused(tmp_path: Path, path: Path) -> None:
    raw = path.read_bytes()
    for end in range(0, len(raw), 7):
        cut = tmp_path / f"cut{path.suffix}"
        cut.write_bytes(raw[:end])
        with contextlib.suppress(SpecError):
            load(cut)


@pytest.mark.parametrize("key", ["agent", "model"])
def test_a_list_of_many_names_is_read_in_one_pass(key):
    """In a process of its own, which can be stopped: once it took a quarter of an hour."""
    program = (
        "import sys; from proctor.spec.load import from_mapping\n"
        "entry = {'path': '/x', sys.argv[1]: [f'a{at}' for at in range(300_000)]}\n"
        "from_mapping({'tasks': [entry]}, file='spec', base_dir='/', environ={})"
    )
    subprocess.run([sys.executable, "-c", program, key], check=True, timeout=60)
