"""Python's own hooks: `.pth`, `sitecustomize`, plugins of pytest, modules that are found before others."""

from __future__ import annotations

import ast
import posixpath
import re

from proctor.trial.task.second_look.changes import Entry
from proctor.trial.task.second_look.packages import SITE
from proctor.trial.task.second_look.setting import Look, Undo
from proctor.trial.task.second_look.tools import MODULES

_LIBRARY = re.compile(r"(?P<library>(?:.*/)?(?:lib|lib64)/python\d\.\d+)/(?P<rest>.+)")
_ZIP = re.compile(r"(?:.*/)?(?:lib|lib64)/python\d+\.zip")
_CUSTOM = re.compile(r"(site|user)customize(\.[\w.-]+)?(/.*)?")
_EDITABLE = re.compile(r"MAPPING[^=]*= (\{.*?\})", re.DOTALL)
_START = re.compile(r"\s*import[ \t]")


def of_python(entry: Entry, look: Look) -> Undo | None:
    """What Python loads before, or instead of, what the tests ask for."""
    if _ZIP.fullmatch(entry.path) and look.image.kind(entry.path) is None:
        return Undo(entry, "is imported from before the standard library")
    found = SITE.fullmatch(entry.path)
    if found and not (look.is_code(entry.path) or look.home_of(entry.path).startswith(".local/lib")):
        return None  # an environment of the agent's own
    if found:
        return _of_site(entry, found["site"], found["rest"], look)
    found = _LIBRARY.fullmatch(entry.path)
    if found and look.is_code(entry.path) and "__pycache__" not in entry.path:
        return _of_library(entry, found["library"], found["rest"], look)
    return None


def _of_library(entry: Entry, library: str, rest: str, look: Look) -> Undo | None:
    """The standard library of the image gets nothing new that has one of its names."""
    if entry.kind == "folder" or look.image.kind(entry.path) is not None or not look.image.kind(library):
        return None
    if look.packages.explains(entry.path) and not _has(look, posixpath.dirname(entry.path), rest):
        return None
    return Undo(entry, "was added to the standard library")


def _has(look: Look, folder: str, rest: str) -> bool:
    """Whether a folder of the image has a module of that name in another form."""
    name = posixpath.basename(rest).partition(".")[0]
    return any(each.partition(".")[0] == name for each in look.image.names(folder))


def _of_site(entry: Entry, site: str, rest: str, look: Look) -> Undo | None:
    top = rest.partition("/")[0]
    name = top.partition(".")[0].partition("-")[0].lower()
    if entry.path in look.same or "__pycache__" in rest.split("/"):
        return None
    if _CUSTOM.fullmatch(rest):
        return Undo(entry, "runs at every start of Python")
    if rest.endswith(".pth") and "/" not in rest:
        return _startup(entry, site, look)
    if name in MODULES or _installer(name, look):
        return _judging(entry, name, look)
    return _plugin(entry, look) or _beside(entry, top.partition(".")[0], look)


def _plugin(entry: Entry, look: Look) -> Undo | None:
    """A distribution that says it is a plugin of pytest stays, and is none."""
    content = look.contents.get(entry.path, b"") if entry.path.endswith("/entry_points.txt") else b""
    if b"[pytest11]" not in content or content == look.image.read(entry.path):
        return None
    return Undo(entry, "is a plugin of pytest", content=content.replace(b"[pytest11]", b"[pytesX11]"))


def _beside(entry: Entry, module: str, look: Look) -> Undo | None:
    """A module with the name of one of the image's that no record of an installation has."""
    added = entry.kind != "folder" and look.image.kind(entry.path) is None
    if not added or module not in look.modules or look.packages.explains(entry.path):
        return None
    return Undo(entry, f"is imported with or instead of the image's {module}")


def _installer(name: str, look: Look) -> bool:
    """Pip and uv judge where the tests install with them, unless the task is about them."""
    used = look.text.runs(name, f"{name}3") and look.text.runs("install", "uvx")
    return name in {"pip", "uv"} and used and not re.search(rf"\b{name}\b", look.text.instruction)


def _judging(entry: Entry, name: str, look: Look) -> Undo | None:
    """A module that judges is the image's whole one, or the one that the tests install."""
    package = {"_pytest": "pytest", "py": "pytest", "pluggy": "pytest", "iniconfig": "pytest"}.get(name, name)
    if name not in look.modules and not look.brings(package):
        return None
    if entry.kind == "folder":
        return Undo(entry, "the folder was replaced", only_mark=True) if entry.opaque else None
    return Undo(entry, "is what judges")


def _startup(entry: Entry, site: str, look: Look) -> Undo | None:
    """Lines of paths add folders at the end, which is harmless; lines of code run at every start."""
    content = look.contents.get(entry.path, b"").decode(errors="replace")
    if entry.kind == "link":
        return Undo(entry, "runs at every start of Python")
    if entry.kind != "file" or not any(_START.match(line) for line in content.splitlines()):
        return None
    folders: list[str] = []
    for name in re.findall(r"import (__editable___\w+)", content):
        text = look.contents.get(f"{site}/{name}.py", b"").decode(errors="replace")
        for mapping in _EDITABLE.findall(text):
            folders += _folders(mapping)
    kept = "".join(f"{each}\n" for each in folders).encode()
    return Undo(entry, "runs at every start of Python", content=kept or None)


def _folders(mapping: str) -> list[str]:
    """The folders of a project that was installed to be edited in place."""
    try:
        found = ast.literal_eval(mapping)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    values = found.values() if isinstance(found, dict) else ()
    return [posixpath.dirname(each) for each in values if isinstance(each, str) and "\n" not in each]
