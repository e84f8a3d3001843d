"""Names of back ends, and what can work here."""

from __future__ import annotations

import pytest

from proctor.errors import SandboxError, UsageError
from proctor.sandbox import choose, probe, userns
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.fake import Fake


@pytest.mark.anyio
async def test_names_open_their_back_ends(tmp_path):
    assert isinstance(choose.open_backend("fake", tmp_path), Fake)
    assert isinstance(choose.open_backend("bubblewrap", tmp_path), Bubblewrap)


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'bubblewrap'"):
        choose.choose("bublewrap")
    with pytest.raises(UsageError, match="there are auto, bubblewrap"):
        choose.choose("zzz")


def test_auto_takes_the_first_that_can_work_and_explains_when_none_can(monkeypatch):
    works = choose.Kind(open=choose._open_fake, obstacle=lambda: "", images=None)
    broken = choose.Kind(open=choose._open_fake, obstacle=lambda: "it is Tuesday", images=None)
    monkeypatch.setattr(choose, "AUTO", ("a", "b"))
    monkeypatch.setattr(choose, "BACKENDS", {"a": broken, "b": works})
    assert choose.choose("auto") == "b"
    monkeypatch.setattr(choose, "BACKENDS", {"a": broken, "b": broken})
    with pytest.raises(SandboxError, match="a: it is Tuesday"):
        choose.choose("auto")


def test_only_sandboxes_without_an_engine_can_have_this_machine_s_system_as_root():
    choose.check_host_root("bubblewrap")
    for name in ("podman", "docker"):
        with pytest.raises(
            UsageError, match=f"host root works with bubblewrap only, and the sandbox is {name}"
        ):
            choose.check_host_root(name)


@pytest.mark.parametrize(
    ("file", "value", "expected"),
    [
        ("sys/user/max_user_namespaces", "0", "switched off"),
        ("sys/kernel/unprivileged_userns_clone", "0", "root only"),
        ("sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
    ],
)
def test_switches_of_the_kernel_are_explained(tmp_path, monkeypatch, file, value, expected):
    monkeypatch.setattr(userns.os, "geteuid", lambda: 1000)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(value)
    assert expected in userns.obstacle(tmp_path)


def test_other_obstacles_are_explained(tmp_path, monkeypatch):
    monkeypatch.setattr(userns, "missing_program", lambda: "no keeper")
    assert userns.obstacle(tmp_path) == "no keeper"
    monkeypatch.setattr(userns.sys, "platform", "darwin")
    assert userns.obstacle(tmp_path) == "it needs Linux"


def test_missing_ids_are_an_obstacle(tmp_path, monkeypatch):
    def find_ids():
        raise SandboxError("no ids")

    monkeypatch.setattr(userns, "find_ids", find_ids)
    assert userns.obstacle(tmp_path) == "no ids"


@pytest.mark.anyio
@pytest.mark.needs("bubblewrap")
async def test_a_probe_makes_a_real_sandbox_and_leaves_nothing(tmp_path):
    checks = {check.name: check for check in await probe.probe(tmp_path)}
    assert checks["a sandbox of the host's own system"].ok
    assert "ms" in checks["a sandbox of the host's own system"].detail
    assert list((tmp_path / "sandboxes").iterdir()) == []
    assert not [check for check in checks.values() if check.needed and not check.ok]


@pytest.mark.anyio
async def test_a_probe_reports_what_is_in_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "obstacle", lambda: "no way")
    monkeypatch.setattr(probe.limits, "find_cgroups", lambda name: None)
    checks = {check.name: check for check in await probe.probe(tmp_path)}
    assert checks["user namespaces"].detail == "no way"
    assert checks["a sandbox of the host's own system"].detail == "not tried"
    assert "rlimits" in checks["control groups"].detail
    assert checks["keeper"].detail == "shipped"


@pytest.mark.anyio
async def test_a_sandbox_that_cannot_be_made_is_a_failed_check(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    check = await probe._try_one(tmp_path / "file", "")
    assert not check.ok
    assert check.needed
