# Dockerfiles are kept whole.
# ruff: noqa: E501

from __future__ import annotations

import pytest

from proctor.errors import TaskError
from proctor.sandbox.image.dockerfile import parse
from proctor.sandbox.image.recipe import Copy, MakeFolder, Recipe, Settings, UnsupportedError, base_of, plan

BASE = Settings(env={"PATH": "/bin"})


def planned(text: str, base: Settings = BASE) -> Recipe:
    return plan(parse(text.encode(), "Dockerfile"), base, "Dockerfile")


def base(text: str) -> str:
    return base_of(parse(text.encode(), "Dockerfile"), "Dockerfile")


def test_a_group_ends_with_each_run_and_the_rest_is_the_last():
    recipe = planned("FROM a\nRUN one\nWORKDIR /app\nCOPY x .\nRUN two\nCOPY y z\n")
    assert [group.run.argv[-1] if group.run else None for group in recipe.groups] == ["one", "two", None]
    assert recipe.groups[1].steps == (
        MakeFolder(line=3, path="/app"),
        Copy(line=4, sources=("x",), target="/app/", text="COPY x ."),
    )
    assert recipe.groups[2].steps[0].target == "/app/z"
    assert recipe.settings.workdir == "/app"


def test_a_last_workdir_alone_makes_no_layer_because_every_sandbox_makes_it():
    assert planned("FROM a\nWORKDIR /app\n").groups == ()
    assert len(planned("FROM a\nWORKDIR /a\nWORKDIR /b\n").groups) == 1


def test_variables_reach_later_instructions_and_commands():
    recipe = planned(
        'ARG V=7\nFROM a:$V\nARG V\nARG W=w\nENV A=1 B="x y" PATH=/opt:$PATH\nENV LEGACY some $A text\n'
        'WORKDIR /$W\nWORKDIR sub\nUSER me:$V\nRUN go\nRUN ["exec", "$A"]\n'
    )
    run = recipe.groups[0].run
    assert run.settings.env == {
        "PATH": "/opt:/bin", "A": "1", "B": "x y", "LEGACY": "some 1 text", "V": "7", "W": "w",
    }  # fmt: skip
    assert (run.settings.workdir, run.settings.user) == ("/w/sub", "me:7")
    assert run.argv == ("/bin/sh", "-c", "go")
    assert recipe.groups[1].run.argv == ("exec", "$A")
    assert "V" not in recipe.settings.env


def test_the_shell_can_be_changed():
    assert planned('FROM a\nSHELL ["bash", "-ec"]\nRUN x\n').groups[0].run.argv == ("bash", "-ec", "x")


def test_documents_become_scripts_and_files():
    recipe = planned(
        "FROM a\nENV A=1\nRUN <<E\necho 1\nE\nRUN cat <<E >x\nhi\nE\nCOPY <<one <<'two' /etc/\n$A\none\n$A\ntwo\n"
    )
    assert recipe.groups[0].run.argv[-1] == "echo 1\n"
    assert recipe.groups[1].run.argv[-1] == "cat <<E >x\nhi\nE"
    assert recipe.groups[2].steps[0].texts == (("one", "1\n"), ("two", "$A\n"))


def test_what_containers_do_by_themselves_is_left_to_the_harness():
    text = "FROM a\nEXPOSE 80\nCMD x\nENTRYPOINT y\nLABEL a=b\nVOLUME /v\nHEALTHCHECK NONE\nSTOPSIGNAL 9\nMAINTAINER z\n"
    assert planned(text).groups == ()


def test_stages_are_followed_to_their_base():
    text = "ARG T=1\nFROM root:$T AS one\nENV A=1\nFROM other AS two\nENV B=1\nFROM ONE\nENV C=1\n"
    assert base(text) == "root:1"
    assert planned(text).settings.env == {"PATH": "/bin", "A": "1", "C": "1"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("COPY --from=x a b", "COPY --from"),
        ("ADD https://example.org/x /x", "ADD of an address"),
        ("ADD git@example.org:x /x", "ADD of an address"),
        ("RUN --mount=type=cache,target=/c x", "RUN --mount"),
        ("ONBUILD RUN x", "ONBUILD"),
        ("ENV A=${B/x/y}", "in ENV"),
        ("RUN <<E\n#!/usr/bin/python3\nE", "#!"),
    ],
)
def test_what_only_an_engine_can_do_is_named_with_its_line(text, what):
    with pytest.raises(UnsupportedError, match=what) as caught:
        planned(f"FROM a\n{text}\n")
    assert caught.value.line == 2


def test_a_computed_base_of_an_unknown_kind_needs_an_engine():
    with pytest.raises(UnsupportedError):
        base("ARG A=1\nFROM x${A%1}\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RUN x\nFROM a\n", "RUN before the first FROM"),
        ("FROM a b c d\n", "FROM takes an image"),
        ("FROM a\nENV X\n", "ENV needs a value"),
        ("FROM a\nENV A=1 B\n", "ENV takes NAME=value"),
        ("FROM a\nSHELL bash\n", "SHELL takes a list"),
        ("FROM a\nCOPY x\n", "COPY takes sources and a target"),
        ("FROM a\nCOPY x y z\n", "must end with '/'"),
    ],
)
def test_wrong_instructions_are_the_author_s_errors(text, said):
    with pytest.raises(TaskError, match=said):
        planned(text)


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("x", "/w/x"),
        (".", "/w/"),
        ("./", "/w/"),
        ("/", "/"),
        ("/a/../../b", "/b"),
        ("/a/.", "/a/"),
        ("//x", "/x"),
    ],
)
def test_targets_are_absolute(target, place):
    assert planned(f"FROM a\nWORKDIR /w\nCOPY f {target}\n").groups[0].steps[1].target == place
