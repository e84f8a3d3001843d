"""Which changes touch what a verifier executes or loads: files the image had, and what shadows or hooks."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable, Sequence

from proctor.trial.task.second_look.changes import Undo, below
from proctor.trial.task.second_look.context import INSTALLED, MODULES, TOOLS, RuleContext
from proctor.trial.task.second_look.packages import INFO, SITE
from proctor.trial.task.second_look.startup import of_etc, of_home, of_python, pytest_settings
from proctor.trial.task.state import Entry

_ROOT_FILES = re.compile(r"[^/]+\.(py|pyc|so)|\.?pytest\.ini|node_modules(/.*)?")
_TEST_FILES = {"conftest.py", "pytest.ini", ".pytest.ini"}
_FROM_HERE = re.compile(r"python[\d.]*(\s+-\w+)*\s+-[mc]\b|sys\.executable|\bpytest\b")
_GCONV = re.compile(r".*/gconv/.+")
_PERL = re.compile(
    r"(?:etc/perl|usr/local/(?:lib|share)(?:/[^/]+)?/(?:perl|site_perl)(?:/[\d.]+)?|usr/lib/[^/]+/perl5?(?:/[\d.]+)?)"
    r"/(?P<module>.+\.p[lm])"
)
_PERL_HOMES = ("usr/share/perl5", "usr/share/perl", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu")


def undoing(found: Sequence[Entry], look: RuleContext) -> list[Undo]:
    """What of these changes a second verdict is to do without; empty when none can have helped."""
    undone = []
    for entry in found:
        for rule in _RULES:
            undo = rule(entry, look)
            if undo:
                undone.append(undo)
                break
    return undone


def caches(found: Sequence[Entry], look: RuleContext) -> list[str]:
    """Folders of compiled Python modules of the system that an agent wrote into; they can be emptied."""
    folders = {posixpath.dirname(each.path) for each in found if "/__pycache__/" in each.path}
    return sorted(
        f"/{each}"
        for each in folders
        if posixpath.basename(each) == "__pycache__"
        and look.is_code(each)
        and look.image.kind(posixpath.dirname(each)) == "folder"
    )


def _in_cache(entry: Entry, look: RuleContext) -> Undo | None:
    """Compiled modules are emptied before any verdict; a folder of them changes nothing."""
    if "__pycache__" in entry.path.split("/") and look.is_code(entry.path):
        return Undo(entry, "is a compiled module", harmless=True)
    return None


def _of_image(entry: Entry, look: RuleContext) -> Undo | None:
    """A program or something loaded that the image had: put back, unless a package upgrade explains it."""
    path = entry.path
    script = path.startswith(f"{INFO}/")
    before = look.image.kind(path) if (look.is_code(path) or script) and path not in look.same else None
    if before is None or (script and _package_of(path) in look.packages.upgraded):
        return None
    if entry.kind == "folder" and before == "folder":
        replaced = entry.opaque and not look.packages.explains(path)
        return Undo(entry, "the folder was replaced", only_mark=True) if replaced else None
    if not _judges(path, look) and (look.packages.explains(path) or look.text.names(path)):
        return None
    return Undo(entry, "removed" if entry.kind == "gone" else "changed")


def _package_of(script: str) -> str:
    """The Debian package whose scripts these are, as `info/name:amd64.postinst`."""
    return posixpath.basename(script).rpartition(".")[0].partition(":")[0]


def _judges(path: str, look: RuleContext) -> bool:
    """Whether it is one of every verifier's own tools, which no package and no instruction excuses."""
    folder, name = posixpath.split(path)
    if folder in look.path and (name in TOOLS or re.fullmatch(r"python[\d.]+", name)):
        return True
    found = SITE.fullmatch(path)
    if found:
        return found["rest"].partition("/")[0].partition(".")[0] in MODULES
    return bool(re.match(r"(ld-|libc[.-]|libpython|libpthread|libdl)", name)) and ".so" in name


def _shadows_program(entry: Entry, look: RuleContext) -> Undo | None:
    """A program that is found before one of the image, or instead of one that the tests install."""
    folder, name = posixpath.split(entry.path)
    first = posixpath.dirname(look.home_of(entry.path)) in {".local/bin", "bin", ".cargo/bin"}
    if entry.kind not in {"file", "link"} or not (first or folder in look.path):
        return None
    if look.image.kind(entry.path) is not None:
        return None
    if first and name == "env":
        return Undo(entry, "is read by shells")
    own = -1 if first else look.path.index(folder)
    known = [number for number, place in enumerate(look.path) if look.image.kind(f"{place}/{name}")]
    judges = name in TOOLS or bool(re.fullmatch(r"python[\d.]+", name))
    why = ""
    if known and own < known[0]:
        if judges or not (look.packages.explains(entry.path) or look.text.names(entry.path, look.homes)):
            why = f"is found before /{look.path[known[0]]}/{name}"
    elif (
        not known
        and (judges or name in INSTALLED)
        and look.brings({"uvx": "uv", "py.test": "pytest"}.get(name, name))
    ):
        why = "is found instead of what the tests install"
    return Undo(entry, why) if why else None


def _shadows_library(entry: Entry, look: RuleContext) -> Undo | None:
    """A shared library with the name of one of the image, where the loader looks."""
    folder, name = posixpath.split(entry.path)
    if entry.kind not in {"file", "link"} or not look.is_code(entry.path):
        return None
    if look.image.kind(entry.path) is not None:
        return None
    if _GCONV.fullmatch(entry.path) and not look.packages.explains(entry.path):
        return Undo(entry, "is loaded to convert text")
    searched = folder in look.loader_folders or "/glibc-hwcaps/" in entry.path
    if ".so" in name and searched and name in look.libraries and not look.packages.explains(entry.path):
        return Undo(entry, "has the name of a library of the image")
    return None


def _of_perl(entry: Entry, look: RuleContext) -> Undo | None:
    found = _PERL.fullmatch(entry.path)
    if not found or look.image.kind(entry.path) is not None:
        return None
    module = found["module"]
    known = any(look.image.kind(f"{base}/{module}") for base in _PERL_HOMES) or any(
        look.image.kind(f"{base}/{name}/{module}")
        for base in _PERL_HOMES
        for name in look.image.names(base)
        if name[0].isdigit() or name.startswith("perl")
    )
    return Undo(entry, "is loaded by perl") if known or module == "sitecustomize.pl" else None


def _of_root(entry: Entry, look: RuleContext) -> Undo | None:
    """Beside /tests: what Python, pytest and node look for in the folders above a test."""
    added = look.image.kind(entry.path) is None and look.given(entry.path) is None
    if added and entry.kind != "folder" and _ROOT_FILES.fullmatch(entry.path):
        return Undo(entry, "is looked for above the tests")
    return pytest_settings(entry, look) if "/" not in entry.path else None


def _of_workdir(entry: Entry, look: RuleContext) -> Undo | None:
    """In the folder where the tests start: modules that are found before the standard library's."""
    path = entry.path
    if not look.workdir or not path.startswith(f"{look.workdir}/"):
        return None
    rest = path[len(look.workdir) + 1 :]
    if "/" not in rest and (undo := pytest_settings(entry, look)):
        return undo
    if entry.kind not in {"file", "link"} or look.image.kind(path) or look.given(path) is not None:
        return None
    if rest in _TEST_FILES and rest not in look.text.instruction:
        return Undo(entry, "configures pytest")
    module = _module(rest, look)
    return Undo(entry, f"is imported instead of the module {module}") if module else None


def _module(rest: str, look: RuleContext) -> str:
    """The module that a file of the working folder takes the place of; empty when of none."""
    top = rest.split("/", maxsplit=1)[0]
    module = top.partition(".")[0]
    if "/" in rest:
        found = f"{look.workdir}/{top}/__init__.py" in look.contents
    else:
        found = bool(re.search(r"\.(py|pyc|so)$", rest))
    known = module in MODULES or (module in sys.stdlib_module_names and module != "test")
    asked = top in look.text.instruction or not _FROM_HERE.search(look.text.tests)
    return module if found and known and not asked else ""


def _kept_to_install(entry: Entry, look: RuleContext) -> Undo | None:
    """What package managers keep to install from without asking anybody."""
    home = look.home_of(entry.path)
    if not home or entry.kind == "folder" or look.image.kind(entry.path) is not None:
        return None
    kept = {
        ".cache/uv": ("uv", "uvx"),
        ".local/share/uv": ("uv", "uvx"),
        ".cache/pip": ("pip", "pip3"),
        ".npm": ("npm", "npx"),
    }
    for folder, users in kept.items():
        if below(home, folder) and look.text.runs(*users):
            return Undo(entry, f"is kept for {users[0]}, which the tests run")
    return None


_RULES: tuple[Callable[[Entry, RuleContext], Undo | None], ...] = (
    _in_cache,
    _of_root,
    of_etc,
    of_home,
    of_python,
    _of_image,
    _shadows_program,
    _shadows_library,
    _of_perl,
    _of_workdir,
    _kept_to_install,
)
