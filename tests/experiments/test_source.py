"""The digest follows the code and nothing else."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from proctor.experiments.base import Experiment, Registered
from proctor.experiments.source import source_digest, source_files
from proctor.experiments.spatial.spatial_comprehensive import SpatialComprehensive
from proctor.experiments.spatial.spatial_index_profiler import SpatialIndexProfiler
from proctor.experiments.spatial.spatial_memory_profiler import SpatialMemoryProfiler
from proctor.experiments.spatial.spatial_performance_analyzer import SpatialPerformanceAnalyzer


class Mine(Experiment):
    def execute_once(self, context):
        return {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "somewhere"
    made.mkdir()
    write(made)
    return made


def write(folder: Path) -> None:
    (folder / "mine.py").write_text("import json\nimport near\nfrom .inner.deep import (\n    x,\n)\n")
    (folder / "near.py").write_text("from . import far\n")
    (folder / "far.py").write_text("y = 1\n")
    (folder / "inner").mkdir(exist_ok=True)
    (folder / "inner" / "__init__.py").write_text("")
    (folder / "inner" / "deep.py").write_text("from .beside import x\nfrom ... import outside\n")
    (folder / "inner" / "beside.py").write_text("x = 1\n")
    (folder / "stranger.py").write_text("z = 1\n")


def digest(folder: Path, slug: str = "mine") -> str:
    return source_digest(Registered(slug=slug, cls=Mine, file=str(folder / "mine.py"), line=1))


def test_the_digest_is_the_same_in_another_folder_and_with_other_line_ends(folder, tmp_path):
    other = tmp_path / "elsewhere" / "deeper"
    other.mkdir(parents=True)
    write(other)
    for file in other.rglob("*.py"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert digest(other) == digest(folder)


@pytest.mark.parametrize("name", ["mine.py", "near.py", "far.py", "inner/deep.py", "inner/beside.py"])
def test_a_change_in_the_file_or_in_what_it_imports_changes_the_digest(folder, name):
    before = digest(folder)
    with (folder / name).open("a") as file:
        file.write("changed = True\n")
    assert digest(folder) != before


def test_a_neighbour_that_is_not_imported_does_not_matter(folder):
    before = digest(folder)
    (folder / "stranger.py").write_text("z = 2\n")
    assert digest(folder) == before


def test_a_neighbour_with_a_syntax_error_still_counts(folder):
    before = digest(folder)
    (folder / "near.py").write_text("def (\n")
    assert digest(folder) != before


def test_two_slugs_in_one_file_differ(folder):
    assert digest(folder, "one") != digest(folder, "other")


def test_an_absolute_import_of_the_own_package_is_followed(tmp_path):
    package = tmp_path / "bench" / "speed"
    package.mkdir(parents=True)
    (package / "mine.py").write_text("import bench.speed.near\nimport os.path\n")
    (package / "near.py").write_text("a = 1\n")
    before = digest(package)
    (package / "near.py").write_text("a = 2\n")
    assert digest(package) != before


def test_a_class_without_a_file_has_a_digest_all_the_same(tmp_path):
    assert len(digest(tmp_path / "gone")) == 64


@pytest.mark.parametrize("name", ["kd_tree", "libraries", "quadtree", "spatial_hash"])
def test_the_digests_of_the_spatial_experiments_follow_the_indexes_that_they_measure(name):
    for experiment in (
        SpatialComprehensive,
        SpatialIndexProfiler,
        SpatialMemoryProfiler,
        SpatialPerformanceAnalyzer,
    ):
        start = Path(inspect.getfile(experiment))
        files = source_files(start, start.parent.parent)
        assert start.with_name(f"{name}.py") in files
