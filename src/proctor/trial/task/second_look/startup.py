"""Files that shells, the loader, pytest and installers read before anything else: rules about these."""

from __future__ import annotations

import ast
import posixpath
import re
import struct

from proctor.trial.task.second_look.changes import Undo
from proctor.trial.task.second_look.context import MODULES, TOOLS, RuleContext
from proctor.trial.task.second_look.packages import SITE
from proctor.trial.task.state import Entry

_ETC = re.compile(
    r"etc/(ld\.so\.preload|ld\.so\.conf|ld\.so\.conf\.d/.+|environment|profile|profile\.d/.+|bash\.bashrc|"
    r"bash\.bash_logout|bashrc|zshenv|zsh/.+|sudoers|sudoers\.d/.+|cron.*|hosts|resolv\.conf|nsswitch\.conf|"
    r"host\.conf|gai\.conf|apt/.+|dpkg/.+|pip\.conf|uv/.+|npmrc|gitconfig|wgetrc|curlrc|ssl/openssl\.cnf|"
    r"python3[^/]*/sitecustomize\.py|perl/sitecustomize\.pl|security/pam_env\.conf|node/.+)"
    r"|usr/etc/npmrc|var/spool/cron/.+"
)
_CERTIFICATES = re.compile(
    r"etc/(ssl/certs|ca-certificates(\.conf)?|pki)(/.+)?|usr/local/share/ca-certificates/.+"
)
_BUNDLES = ("etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt")
_HOME = re.compile(
    r"\.(bashrc|bash_profile|bash_login|bash_aliases|bash_env|profile|zshenv|zshrc|zprofile|curlrc|wgetrc|netrc|"
    r"npmrc|gitconfig|pydistutils\.cfg|pytest\.ini|pip/pip\.conf|config/(pip|uv|git|curlrc|fish)(/.+)?|"
    r"node_modules/.+|node_libraries/.+|cargo/env|ssh/rc|inputrc|terminfo/.+)"
)
_SECTIONS = (b"[tool.pytest", b"[tool:pytest", b"[pytest")
CACHE = "etc/ld.so.cache"
ACCOUNTS = "etc/passwd"
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"


def of_etc(entry: Entry, look: RuleContext) -> Undo | None:
    """Start-up files, name resolution, certificates and the loader's own files below /etc."""
    path = entry.path
    if entry.kind == "folder" or path in look.same or look.text.names(path):
        return None
    if path == CACHE:
        return _loader_cache(entry, look)
    if path == ACCOUNTS:
        return _accounts(entry, look)
    folder, name = posixpath.split(path)
    if folder == "etc/alternatives":
        return Undo(entry, "changed") if name in TOOLS and look.image.kind(path) else None
    if _CERTIFICATES.fullmatch(path):
        trusted = any(look.image.kind(each) for each in _BUNDLES)
        return Undo(entry, "says whom to trust") if trusted else None
    return Undo(entry, "is read at a start") if _ETC.fullmatch(path) else None


def of_home(entry: Entry, look: RuleContext) -> Undo | None:
    """Start-up files and settings of programs in a home folder."""
    rest = look.home_of(entry.path)
    if not rest or entry.kind == "folder" or not _HOME.fullmatch(rest):
        return None
    if entry.path in look.same or look.text.names(entry.path, look.homes):
        return None
    return Undo(entry, "is read at a start")


def pytest_settings(entry: Entry, look: RuleContext) -> Undo | None:
    """The part of a project's settings that is about pytest is renamed; all else stays."""
    if posixpath.basename(entry.path) not in {"pyproject.toml", "setup.cfg", "tox.ini"}:
        return None
    if entry.kind == "link":
        return Undo(entry, "configures pytest")
    content = look.contents.get(entry.path, b"")
    if content == look.given(entry.path) or content == look.image.read(entry.path):
        return None
    changed = content
    for section in _SECTIONS:
        changed = changed.replace(section, section[:-1] + b"X")
    return Undo(entry, "configures pytest", content=changed) if changed != content else None


def _accounts(entry: Entry, look: RuleContext) -> Undo | None:
    """Accounts of the image are as they were: a home or a shell of another kind would be a hook."""
    before, after = look.image.read(entry.path), look.contents.get(entry.path)
    if before is None:
        return None
    known = {line.partition(b":")[0] for line in before.splitlines()}
    kept = [line for line in (after or b"").splitlines() if set(before.splitlines()) >= {line}]
    if after is not None and len(kept) >= len(before.splitlines()):
        return None
    added = [line for line in (after or b"").splitlines() if line.partition(b":")[0] not in known]
    return Undo(entry, "changed", content=b"\n".join([*before.splitlines(), *added, b""]))


def _loader_cache(entry: Entry, look: RuleContext) -> Undo | None:
    """The loader's list of libraries may grow; what the image has must be where it was."""
    before = look.image.read(entry.path)
    if entry.kind != "file" or before is None:
        return Undo(entry, "says where libraries are") if entry.kind != "gone" else None
    try:
        old, new = libraries_in(before), libraries_in(look.contents.get(entry.path, b""))
    except (struct.error, ValueError, IndexError):
        return Undo(entry, "says where libraries are, in an unknown form")
    moved = [name for name, place in old.items() if new.get(name, place) != place]
    strange = any(_outside(place, look) for name, place in new.items() if name not in old)
    if not moved and not (strange and not old):
        return None
    return Undo(entry, f"says that {(moved or ['a library'])[0][:60]} is elsewhere")


def _outside(place: str, look: RuleContext) -> bool:
    return not any(place.strip("/").startswith(f"{each}/") for each in look.loader_folders)


def libraries_in(cache: bytes) -> dict[str, str]:
    """Library → the first place where the loader finds it, from an ld.so.cache."""
    start = cache.index(_CACHE_MAGIC)
    (count,) = struct.unpack_from("<I", cache, start + len(_CACHE_MAGIC))
    if count > 1_000_000:
        raise ValueError(count)
    found: dict[str, str] = {}
    for number in range(count):
        key, value = struct.unpack_from("<II", cache, start + 48 + 24 * number + 4)
        name, place = (_text(cache, start + each) for each in (key, value))
        found.setdefault(name, place)
    return found


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode(errors="replace")


_LIBRARY = re.compile(r"(?P<library>(?:.*/)?(?:lib|lib64)/python\d\.\d+)/(?P<rest>.+)")
_ZIP = re.compile(r"(?:.*/)?(?:lib|lib64)/python\d+\.zip")
_CUSTOM = re.compile(r"(site|user)customize(\.[\w.-]+)?(/.*)?")
_EDITABLE = re.compile(r"MAPPING[^=]*= (\{.*?\})", re.DOTALL)
_START = re.compile(r"\s*import[ \t]")


def of_python(entry: Entry, look: RuleContext) -> Undo | None:
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


def _of_library(entry: Entry, library: str, rest: str, look: RuleContext) -> Undo | None:
    """The standard library of the image gets nothing new that has one of its names."""
    if entry.kind == "folder" or look.image.kind(entry.path) is not None or not look.image.kind(library):
        return None
    if look.packages.explains(entry.path) and not _has(look, posixpath.dirname(entry.path), rest):
        return None
    return Undo(entry, "was added to the standard library")


def _has(look: RuleContext, folder: str, rest: str) -> bool:
    """Whether a folder of the image has a module of that name in another form."""
    name = posixpath.basename(rest).partition(".")[0]
    return any(each.partition(".")[0] == name for each in look.image.names(folder))


def _of_site(entry: Entry, site: str, rest: str, look: RuleContext) -> Undo | None:
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


def _plugin(entry: Entry, look: RuleContext) -> Undo | None:
    """A distribution that says it is a plugin of pytest stays, and is none."""
    content = look.contents.get(entry.path, b"") if entry.path.endswith("/entry_points.txt") else b""
    if b"[pytest11]" not in content or content == look.image.read(entry.path):
        return None
    return Undo(entry, "is a plugin of pytest", content=content.replace(b"[pytest11]", b"[pytesX11]"))


def _beside(entry: Entry, module: str, look: RuleContext) -> Undo | None:
    """A module with the name of one of the image's that no record of an installation has."""
    added = entry.kind != "folder" and look.image.kind(entry.path) is None
    if not added or module not in look.modules or look.packages.explains(entry.path):
        return None
    return Undo(entry, f"is imported with or instead of the image's {module}")


def _installer(name: str, look: RuleContext) -> bool:
    """Pip and uv judge where the tests install with them, unless the task is about them."""
    used = look.text.runs(name, f"{name}3") and look.text.runs("install", "uvx")
    return name in {"pip", "uv"} and used and not re.search(rf"\b{name}\b", look.text.instruction)


def _judging(entry: Entry, name: str, look: RuleContext) -> Undo | None:
    """A module that judges is the image's whole one, or the one that the tests install."""
    package = {"_pytest": "pytest", "py": "pytest", "pluggy": "pytest", "iniconfig": "pytest"}.get(name, name)
    if name not in look.modules and not look.brings(package):
        return None
    if entry.kind == "folder":
        return Undo(entry, "the folder was replaced", only_mark=True) if entry.opaque else None
    return Undo(entry, "is what judges")


def _startup(entry: Entry, site: str, look: RuleContext) -> Undo | None:
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
