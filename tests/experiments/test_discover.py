"""Experiments are found wherever they are; one broken module never hides the others."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.errors import NotFoundError, UsageError
from proctor.experiments.base import REGISTRY, ExperimentContext
from proctor.experiments.describe import instantiate
from proctor.experiments.discover import BUILT_IN_MODULES, discover, find, shadowed

ROOM = Path(importlib.import_module("proctor.experiments").__file__).parent
BUILT_IN = {name.rpartition(".")[2] for name in BUILT_IN_MODULES}

EXPERIMENT = """
from proctor import Experiment, register_experiment
{imports}
@register_experiment("{slug}")
class Mine(Experiment):
    def execute_once(self, context):
        {body}
"""


@pytest.fixture(autouse=True)
def own_process_state() -> Iterator[None]:
    registry, modules, path = dict(REGISTRY), set(sys.modules), list(sys.path)
    yield
    REGISTRY.clear()
    REGISTRY.update(registry)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith("proctor."):
            del sys.modules[name]


def write(file: Path, slug: str, imports: str = "", body: str = "return {}") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(EXPERIMENT.format(slug=slug, imports=imports, body=body))
    return file


def own(sources: list[str] | list[Path]) -> set[str]:
    found = discover([str(source) for source in sources])
    assert found.broken == ()
    return set(found.experiments) - set(discover().experiments)


def run(slug: str, *sources: Path) -> dict:
    return instantiate(find(slug, [str(each) for each in sources]), {}).execute_once(ExperimentContext())


def test_the_built_in_experiments_are_found_without_any_source():
    found = discover()
    assert set(found.experiments) >= BUILT_IN
    assert found.broken == ()
    assert set(REGISTRY) >= BUILT_IN


def test_the_list_of_built_in_modules_names_every_file_that_registers_an_experiment():
    registering = {
        file.relative_to(ROOM).with_suffix("").as_posix().replace("/", ".")
        for file in ROOM.rglob("*.py")
        if "\n@register_experiment(" in file.read_text()
    }
    assert registering == set(BUILT_IN_MODULES)


def test_a_folder_gives_its_modules_and_packages(tmp_path):
    write(tmp_path / "one.py", "one")
    write(tmp_path / "pack" / "__init__.py", "two")
    write(
        tmp_path / "pack" / "inner.py",
        "three",
        imports="from . import Mine as Outer\nfrom ..one import Mine as One",
    )
    write(tmp_path / "plain" / "not_a_package.py", "no1")
    write(tmp_path / "_private.py", "no2")
    write(tmp_path / "test_one.py", "no3")
    write(tmp_path / "conftest.py", "no4")
    (tmp_path / "notes.txt").write_text("no5")
    assert own([tmp_path]) == {"one", "two", "three"}


def test_one_file_is_a_source_too(tmp_path):
    write(tmp_path / "one.py", "one")
    write(tmp_path / "two.py", "two")
    assert own([tmp_path / "one.py"]) == {"one"}
    assert own([write(tmp_path / "p" / "__init__.py", "pack")]) == {"pack"}


def test_a_folder_that_is_a_package_runs_its_init_once(tmp_path):
    write(tmp_path / "__init__.py", "whole", imports="LOADED = []")
    write(
        tmp_path / "part.py",
        "part",
        imports="from . import LOADED\nLOADED.append(1)",
        body="return {'n': len(LOADED)}",
    )
    assert own([tmp_path]) == {"whole", "part"}
    assert run("part", tmp_path) == {"n": 1}


def test_a_package_whose_init_fails_is_reported_once(tmp_path):
    (tmp_path / "__init__.py").write_text("1 / 0\n")
    write(tmp_path / "part.py", "part")
    found = discover([str(tmp_path)])
    assert [each.error for each in found.broken] == [
        f"{tmp_path}/__init__.py:1: ZeroDivisionError: division by zero"
    ]


def test_two_folders_may_hold_files_and_neighbours_of_the_same_name(tmp_path):
    for name in ("a", "b"):
        write(
            tmp_path / name / "same.py", f"in_{name}", imports="import near", body="return {'near': near.WHO}"
        )
        (tmp_path / name / "near.py").write_text(f"WHO = '{name}'\n")
    folders = tmp_path / "a", tmp_path / "b"
    assert run("in_a", *folders) == {"near": "a"}
    assert run("in_b", *folders) == {"near": "b"}
    assert "near" not in sys.modules


def test_a_method_may_import_a_neighbour_late(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name / "same.py", f"in_{name}", body="import late; return {'late': late.WHO}")
        (tmp_path / name / "late.py").write_text(f"WHO = '{name}'\n")
    assert run("in_b", tmp_path / "a", tmp_path / "b") == {"late": "b"}


def test_a_file_named_like_a_library_does_not_hide_it(tmp_path):
    write(
        tmp_path / "json.py", "mine", imports="import json", body="return {'own': not hasattr(json, 'dumps')}"
    )
    assert run("mine", tmp_path) == {"own": False}


def test_an_experiment_that_another_imports_plainly_is_listed_once(tmp_path):
    write(tmp_path / "a_first.py", "one", imports="import two")
    write(tmp_path / "two.py", "two")
    assert own([tmp_path]) == {"one", "two"}


def test_a_dotted_module_is_found_from_the_work_folder_with_its_direct_modules(tmp_path, monkeypatch):
    write(tmp_path / "bench_pkg_x" / "__init__.py", "top")
    write(tmp_path / "bench_pkg_x" / "speed.py", "speed")
    monkeypatch.chdir(tmp_path)
    assert own(["bench_pkg_x"]) == {"top", "speed"}
    assert own(["bench_pkg_x.speed"]) >= {"speed"}
    assert own(["bench_pkg_x"]) == {"top", "speed"}


@pytest.mark.parametrize(
    ("source", "line", "error"),
    [
        ("x = 1\nraise ValueError('broken on purpose')\n", 2, "ValueError: broken on purpose"),
        ("import sys\n\nsys.exit(3)\n", 3, "SystemExit: 3"),
        ("def broken(:\n", 1, "SyntaxError: invalid syntax"),
        ("import no_such_module_at_all\n", 1, "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError: Expecting property name"),
        ("raise KeyError\n", 1, "KeyError"),
        ("class Own(BaseException): ...\nraise Own('x')\n", 2, "Own: x"),
    ],
)
def test_a_module_that_fails_is_reported_with_its_line_and_the_others_are_found(
    tmp_path, source, line, error
):
    file = tmp_path / "bad.py"
    file.write_text(source)
    write(tmp_path / "good.py", "good")
    found = discover([str(tmp_path)])
    assert "good" in found.experiments
    (broken,) = found.broken
    assert broken.source == str(file)
    assert broken.error.startswith(f"{file}:{line}: {error}")


def test_a_broken_dotted_module_is_reported_too(tmp_path, monkeypatch):
    write(tmp_path / "bench_pkg_y" / "__init__.py", "good")
    (tmp_path / "bench_pkg_y" / "bad.py").write_text("\n1 / 0\n")
    monkeypatch.chdir(tmp_path)
    found = discover(["bench_pkg_y"])
    assert "good" in found.experiments
    assert [each.error for each in found.broken] == [
        f"{tmp_path}/bench_pkg_y/bad.py:2: ZeroDivisionError: division by zero"
    ]


def test_nothing_of_a_module_that_failed_half_way_is_listed(tmp_path):
    file = write(tmp_path / "half.py", "half")
    file.write_text(file.read_text() + "\n1 / 0\n")
    found = discover([str(tmp_path)])
    assert "half" not in found.experiments
    assert "half" not in REGISTRY
    assert len(found.broken) == 1


def test_ctrl_c_during_an_import_is_not_swallowed(tmp_path):
    (tmp_path / "slow.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        discover([str(tmp_path)])


def test_what_a_module_prints_goes_to_standard_error(tmp_path, capsys):
    (tmp_path / "loud.py").write_text("print('loud')\n")
    discover([str(tmp_path)])
    assert capsys.readouterr() == ("", "loud\n")


def test_a_slug_in_two_files_names_both_and_keeps_the_first(tmp_path):
    one, two = write(tmp_path / "one.py", "same"), write(tmp_path / "two.py", "same")
    found = discover([str(tmp_path)])
    assert found.experiments["same"].file == str(one)
    assert [each.error for each in found.broken] == [
        f"experiment 'same' is registered twice: at {one}:4 and at {two}:4"
    ]


def test_the_user_s_own_experiment_wins_over_a_built_in_one(tmp_path):
    write(tmp_path / "one.py", "memory_db")
    found = discover([str(tmp_path)])
    assert found.experiments["memory_db"].file == str(tmp_path / "one.py")
    assert found.broken == ()
    assert "the built-in one is not used" in shadowed(found.experiments["memory_db"])[0]
    assert shadowed(discover().experiments["memory_db"]) == ()


def test_two_of_the_user_s_with_one_name_are_an_error_when_asked_for(tmp_path):
    write(tmp_path / "one.py", "twice")
    write(tmp_path / "two.py", "twice")
    with pytest.raises(UsageError, match=r"'twice' is registered twice: .*one.py.*two.py"):
        find("twice", [str(tmp_path)])
    assert "memory_db" in discover([str(tmp_path)]).experiments


def test_a_slug_may_come_from_another_folder_the_next_time(tmp_path):
    write(tmp_path / "old" / "one.py", "same", body="return {'old': 1}")
    write(tmp_path / "new" / "one.py", "same", body="return {'new': 1}")
    assert run("same", tmp_path / "old") == {"old": 1}
    assert run("same", tmp_path / "new") == {"new": 1}
    assert run("same", tmp_path / "old") == {"old": 1}


def test_an_edited_file_is_loaded_anew(tmp_path):
    file = write(tmp_path / "one.py", "one", body="return {'n': 1}")
    assert run("one", tmp_path) == {"n": 1}
    write(file, "one", body="return {'number': 22}")
    assert run("one", tmp_path) == {"number": 22}


def test_an_experiment_with_a_wrong_schema_is_reported_not_listed(tmp_path):
    file = write(tmp_path / "one.py", "one")
    file.write_text(file.read_text() + "    param_schema = {'n': {'type': 'integr'}}\n")
    found = discover([str(tmp_path)])
    assert "one" not in found.experiments
    assert "'integr' is not a type" in found.broken[0].error


@pytest.mark.parametrize("source", ["no/such/folder", "no_such.py", "no_such_module_at_all", "what is this"])
def test_a_source_that_does_not_exist_is_an_error(source):
    with pytest.raises(NotFoundError, match="no such folder, file or module"):
        discover([source])


def test_a_module_missing_inside_a_package_is_reported():
    assert "No module named 'json.nothing'" in discover(["json.nothing"]).broken[0].error


def test_the_settings_name_folders_and_a_missing_one_is_only_reported(tmp_path, monkeypatch):
    write(tmp_path / "mine" / "one.py", "one")
    monkeypatch.setenv("PROCTOR_EXPERIMENTS", f"{tmp_path}/mine:{tmp_path}/gone")
    found = discover()
    assert "one" in found.experiments
    assert found.broken[0].error.startswith("setting 'experiments'")


def test_an_entry_point_of_an_installed_package_is_found(tmp_path, monkeypatch):
    write(tmp_path / "bench_installed_z.py", "installed")
    info = tmp_path / "bench_installed_z-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: bench-installed-z\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[proctor.experiments]\nmine = bench_installed_z\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "installed" in discover().experiments


def test_a_wrong_name_gets_the_nearest_ones_and_what_is_broken(tmp_path):
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with pytest.raises(NotFoundError) as caught:
        find("memory_bd", [str(tmp_path)])
    assert "no experiment named 'memory_bd'; did you mean 'memory_db'?" in str(caught.value)
    assert f"not loaded: {tmp_path}/bad.py:1: ZeroDivisionError" in str(caught.value)
    with pytest.raises(NotFoundError, match="name a folder of your own with --experiments"):
        find("zzz")


def test_links_to_files_and_folders_are_followed(tmp_path):
    write(tmp_path / "real" / "one.py", "one")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "two.py").symlink_to(tmp_path / "real" / "one.py")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    assert own([tmp_path / "links"]) == {"one"}
    assert own([tmp_path / "folder", tmp_path / "real"]) == {"one"}


def test_an_unreadable_file_is_reported(tmp_path):
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    assert discover([str(tmp_path)]).broken == ()
    loop = tmp_path / "loop.py"
    loop.write_bytes(b"\xff\xfe bad \x00")
    assert discover([str(tmp_path)]).broken[0].source == str(loop)


def test_a_class_shared_by_two_files_is_one_class(tmp_path):
    write(tmp_path / "shared.py", "shared")
    for name in ("one", "two"):
        body = "return {'same': isinstance(self, Mine) and issubclass(type(self), shared.Mine)}"
        file = tmp_path / f"{name}.py"
        file.write_text(
            "from proctor import register_experiment\nfrom . import shared\nfrom .shared import Mine\n"
            f"@register_experiment('{name}')\nclass Own(Mine):\n"
            f"    def execute_once(self, context):\n        {body}\n"
        )
    assert own([tmp_path]) == {"shared", "one", "two"}
    assert run("one", tmp_path) == run("two", tmp_path) == {"same": True}
    assert own([tmp_path / "shared.py"]) == {"shared"}


def test_a_sound_neighbour_of_a_module_that_fails_is_still_listed(tmp_path):
    (tmp_path / "a_bad.py").write_text("from . import sound\n1 / 0\n")
    write(tmp_path / "sound.py", "sound")
    assert "sound" in discover([str(tmp_path)]).experiments


def test_a_module_that_failed_is_tried_again(tmp_path):
    write(tmp_path / "one.py", "one", imports="from .later import X")
    assert len(discover([str(tmp_path)]).broken) == 1
    (tmp_path / "later.py").write_text("X = 1\n")
    assert own([tmp_path]) == {"one"}
