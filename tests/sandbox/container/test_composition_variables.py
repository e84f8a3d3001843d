from __future__ import annotations

import pytest

from proctor.errors import TaskError
from proctor.sandbox.container.composition import fill, harbor_variables, protect

VALUES = {"A": "1", "E": ""}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("$A-${A}", "1-1"),
        ("$N|${N}", "|"),
        ("${N:-x}${N-y}${E:-z}${E-w}", "xyz"),
        ("${A:+y}${E:+n}${E+y}${N+n}", "yy"),
        ("${N:-${A:-q}}", "1"),
        ("${A:?needed}", "1"),
        ("$$A $${A}", "$A ${A}"),
        ("plain", "plain"),
    ],
)
def test_variables_are_filled_in_as_compose_programs_do(text, filled):
    assert fill({"a": [text, 3, None]}, VALUES, "f") == {"a": [filled, 3, None]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${N:?say N}", "f: N has no value: say N"),
        ("${E:?}", "f: E has no value"),
        ("${A", "not closed"),
        ("${1}", "is not a variable"),
        ("${A!}", "is not a variable"),
        ("a $ b", "as \\$\\$"),
    ],
)
def test_what_is_not_a_variable_is_the_author_s_error(text, said):
    with pytest.raises(TaskError, match=said):
        fill(text, VALUES, "f")


def test_what_is_filled_in_is_not_filled_in_again():
    text = "${A} costs $5 $$"
    assert fill(protect({"a": [text]}), VALUES, "f") == {"a": [text]}


def test_harbor_s_names(tmp_path):
    found = harbor_variables(tmp_path, prebuilt="p:1", cpus=1.5, memory_bytes=512 << 20)
    assert found == {
        "CONTEXT_DIR": str(tmp_path),
        "MAIN_IMAGE_NAME": "proctor-main-image",
        "PREBUILT_IMAGE_NAME": "p:1",
        "CPUS": "1.5",
        "MEMORY": "512M",
        **{f"{side}_VERIFIER_LOGS_PATH": "/logs/verifier" for side in ("HOST", "ENV")},
        **{f"{side}_AGENT_LOGS_PATH": "/logs/agent" for side in ("HOST", "ENV")},
        **{f"{side}_ARTIFACTS_PATH": "/logs/artifacts" for side in ("HOST", "ENV")},
    }
