# Dockerfiles are kept whole.
# ruff: noqa: E501

from __future__ import annotations

import pytest

from proctor.errors import ImageError, TaskError
from proctor.sandbox.image.dockerfile import parse
from proctor.sandbox.image.recipe import Copy, MakeFolder, Recipe, plan
from proctor.sandbox.image.references import Settings
from proctor.sandbox.image.stages import UnsupportedError, read_stages

BASE = Settings(env={"PATH": "/bin"})


def planned(text: str, base: Settings = BASE) -> Recipe:
    stages = read_stages(parse(text.encode(), "Dockerfile"), "Dockerfile")
    return plan(stages, stages.target(), base)


def bases(text: str) -> tuple[str, ...]:
    stages = read_stages(parse(text.encode(), "Dockerfile"), "Dockerfile")
    return stages.bases(stages.target())


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
    text = "FROM a\nEXPOSE 80\nCMD x\nLABEL a=b\nVOLUME /v\nHEALTHCHECK NONE\nSTOPSIGNAL 9\nMAINTAINER z\n"
    assert planned(text).groups == ()


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("", ()),
        ('ENTRYPOINT ["/e", "x"]', ("/e", "x")),
        ("ENTRYPOINT run $A", ("/bin/sh", "-c", "run $A")),
        ('SHELL ["/bin/bash", "-c"]\nENTRYPOINT run', ("/bin/bash", "-c", "run")),
        ('ENTRYPOINT ["/e"]\nRUN x\nENTRYPOINT []', ()),
    ],
)
def test_the_last_entrypoint_is_known_and_steps_run_without_it(lines, wanted):
    recipe = planned(f"FROM a\n{lines}\n")
    assert recipe.settings.entrypoint == wanted
    assert all(group.run is None or group.run.settings.entrypoint == () for group in recipe.groups)


def test_stages_are_followed_to_their_base():
    text = "ARG T=1\nFROM root:$T AS one\nENV A=1\nFROM other AS two\nENV B=1\nFROM ONE\nENV C=1\n"
    assert bases(text) == ("root:1",)
    assert planned(text).settings.env == {"PATH": "/bin", "A": "1", "C": "1"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("ADD git@example.org:x /x", "ADD of a git repository"),
        ("ADD https://example.org/x.git#main /x", "ADD of a git repository"),
        ("ADD --keep-git-dir=true x /x", "ADD --keep-git-dir"),
        ("RUN --mount=type=bind,source=.,target=/c,rw x", "type=bind,rw"),
        ("RUN --mount=type=tmpfs,target=/c,size=1m x", "type=tmpfs,size"),
        ("RUN --mount=type=other,target=/c x", "type=other"),
        ("RUN --device=x y", "RUN --device"),
        ("ENV A=${B^}", "in ENV"),
    ],
)
def test_what_only_an_engine_can_do_is_named_with_its_line(text, what):
    with pytest.raises(UnsupportedError, match=what) as caught:
        planned(f"FROM a\n{text}\n")
    assert caught.value.line == 2


def test_a_computed_base_of_an_unknown_kind_needs_an_engine():
    with pytest.raises(UnsupportedError):
        bases("ARG A=1\nFROM x${A^}\n")


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
    if place.endswith("/"):
        assert planned(f"FROM a\nWORKDIR /w\nCOPY f g {target}\n").groups[0].steps[1].target == place
    assert planned(f"FROM a\nWORKDIR /w\nCOPY f {target}\n").groups[0].steps[1].target == place


def test_every_outside_image_that_the_last_stage_needs_is_listed_once():
    text = (
        "ARG V=1\nARG TOOLS=ghcr.io/x/tools:$V\nFROM base:${V} AS build\nFROM other AS unused\nRUN x\n"
        "FROM build AS more\nCOPY --from=$TOOLS /t /t\nFROM scratch\nCOPY --from=more / /\nCOPY --from=0 /a /a\n"
        "RUN --mount=from=cache:2,target=/c --mount=type=bind,target=/d,from=more x\nCOPY --from=cache:2 /y /y\n"
    )
    assert bases(text) == ("base:1", "ghcr.io/x/tools:1", "cache:2")
    assert bases("FROM scratch\n") == ()
    assert bases("FROM --platform=$BUILDPLATFORM a AS a\nFROM a\n") == ("a",)


def test_build_arguments_replace_defaults_and_are_taken_over_by_name():
    instructions = parse(
        b"ARG T=1\nFROM a:$T\nARG T\nARG U=u\nARG TARGETARCH\nENV X=$T-$U-$TARGETARCH\n", "D"
    )
    stages = read_stages(instructions, "D", {"T": "9", "U": "given", "OTHER": "x"})
    assert stages.bases(0) == ("a:9",)
    env = plan(stages, 0, BASE).settings.env
    assert env["X"].startswith("9-given-")
    assert not env["X"].endswith("-")


def test_a_scripts_interpreter_is_kept_with_it():
    run = planned("FROM a\nRUN <<E\n#!/usr/bin/env python3\nprint(1)\nE\n").groups[0].run
    assert (run.script, run.argv) == ("#!/usr/bin/env python3\nprint(1)\n", ())


def test_health_checks_are_checked_and_not_waited_for():
    text = "FROM a\nHEALTHCHECK --interval=5s --retries=3 CMD curl -f http://localhost\nHEALTHCHECK NONE\n"
    assert planned(text).groups == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("HEALTHCHECK --often CMD x", "HEALTHCHECK has no option --often"),
        ("HEALTHCHECK NONE x", "followed by NONE, or by CMD"),
        ("HEALTHCHECK x", "followed by NONE, or by CMD"),
        ("ONBUILD FROM x", "ONBUILD cannot contain FROM"),
        ("ENV --x A=1", "ENV has no option --x"),
        ("ENV A=${B:?give B}", "ENV: B: give B"),
        ("COPY --from= a b", "COPY --from takes a stage or an image"),
        ("COPY --parents=maybe a b", "--parents is true or false"),
        ("ADD --checksum=sha256:1 https://h/x /x", "takes sha256: and 64"),
        ("ADD --checksum=sha256:1 x /x", "is for one address"),
        ("RUN --mount=type=cache x", "needs target=PATH"),
        ("RUN --mount=type=cache,target=/c,sharing=no x", "sharing is shared, private or locked"),
        ("RUN --mount=type=cache,target=/c,uid=me x", "mode, uid and gid are numbers"),
        ("RUN --mount=type=secret,id=x,required=maybe x", "is not true or false"),
        ("FROM --squash b", "FROM has no option --squash"),
        ("FROM b AS 1st", "'1st' is not a name for a stage"),
    ],
)
def test_wrong_options_are_the_author_s_errors(text, said):
    with pytest.raises(TaskError, match=said):
        planned(f"FROM a\n{text}\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RUN --network=host x", "builds do not get the network of this machine"),
        ("RUN --security=insecure x", "no rights beyond"),
        ("RUN --mount=type=ssh x", "no keys of this machine"),
        ("RUN --mount=type=secret,id=t,required x", "given no secrets"),
        ("FROM --platform=linux/s390x b", "this machine is linux/"),
        ("FROM --platform=windows/amd64 b", "this machine is linux/"),
    ],
)
def test_what_no_build_may_do_is_refused_with_its_line(text, said):
    with pytest.raises(ImageError, match=rf"Dockerfile:2: .*{said}"):
        planned(f"FROM a\n{text}\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A#*.}", "b.c"),
        ("${A##*.}", "c"),
        ("${A%.*}", "a.b"),
        ("${A%%.*}", "a"),
        ("${A/b/x}", "a.x.c"),
        ("${A//./-}", "a-b-c"),
        ("${A#none}", "a.b.c"),
    ],
)
def test_parts_of_a_value_can_be_taken(text, value):
    assert planned(f"FROM a\nENV A=a.b.c\nENV X={text}\n").settings.env["X"] == value
