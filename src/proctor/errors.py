"""Every error that Proctor raises on purpose, and what each means to a shell and to HTTP.

ProctorError
├── UsageError            the request itself is wrong: exit 2, HTTP 400
│   ├── SpecError         a spec file is wrong, with file:line:column
│   ├── ParamError        a parameter does not fit its experiment
│   ├── TaskError         a task folder or archive is wrong
│   ├── SideError         one side of a comparison raised, hung, died or ran the wrong code
│   └── NotFoundError     no such run, trial, experiment, agent …: HTTP 404
├── StoreError            the store cannot be read or written: exit 5, HTTP 503
├── FenceError            a result came with a lease that is no longer ours
├── MissingExtraError     an optional package is needed; says how to install it: exit 2
├── SandboxError          the sandbox failed, not what ran in it: exit 4
│   └── ImageError        its root file system could not be made
├── ProviderError         the model's service refused or failed: exit 4
└── Interrupted           a person stopped the work: exit 130
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of every command; one table for people, CI and tests."""

    OK = 0
    WORSE = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INFRASTRUCTURE = 4
    STORE = 5
    INTERRUPTED = 130


EXIT_MEANING = {
    Exit.OK: "done; gate passed; no worse",
    Exit.WORSE: "regression, worse, or trials failed",
    Exit.USAGE: "usage or bad input; nothing was changed",
    Exit.INCONCLUSIVE: "the data cannot settle the question",
    Exit.INFRASTRUCTURE: "sandboxes, machines or providers failed; the subject was not judged",
    Exit.STORE: "the store cannot be read or written",
    Exit.INTERRUPTED: "interrupted; what had finished is saved",
}


class ProctorError(Exception):
    """Root of the tree; `str()` of it is a whole sentence for a person."""

    exit_code: Exit = Exit.WORSE
    http_status: int = 500


class UsageError(ProctorError):
    """The request is wrong; the caller can mend it."""

    exit_code = Exit.USAGE
    http_status = 400


class SpecError(UsageError):
    """A spec is wrong at a known place."""

    def __init__(
        self, message: str, *, file: str = "", line: int | None = None, column: int | None = None
    ) -> None:
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        place = ":".join(str(part) for part in (file or None, line, column) if part is not None)
        super().__init__(f"{place}: {message}" if place else message)


class ParamError(UsageError):
    """A parameter does not fit the experiment that would receive it."""


class TaskError(UsageError):
    """A task folder or archive is wrong."""


class SideError(UsageError):
    """One side of a comparison raised, hung, died or ran the wrong code; nothing was judged."""


class NotFoundError(UsageError):
    """Nothing goes by that name."""

    http_status = 404


class StoreError(ProctorError):
    """The store cannot be read or written; what it held before is intact."""

    exit_code = Exit.STORE
    http_status = 503


class FenceError(ProctorError):
    """A result arrived under a lease that has passed to another worker; it was refused."""

    http_status = 409


class MissingExtraError(UsageError):
    """An optional package is needed."""

    def __init__(self, package: str, extra: str, why: str) -> None:
        super().__init__(f"{why} needs '{package}': pip install 'proctor-bench[{extra}]'")
        self.package = package
        self.extra = extra


class SandboxError(ProctorError):
    """The sandbox failed, not what ran in it."""

    exit_code = Exit.INFRASTRUCTURE
    http_status = 502


class ImageError(SandboxError):
    """The root file system of a sandbox could not be made."""


class ProviderError(ProctorError):
    """The model's service refused, limited or failed."""

    exit_code = Exit.INFRASTRUCTURE
    http_status = 502


class Interrupted(ProctorError):  # noqa: N818 - it is not an error, like KeyboardInterrupt
    """A person stopped the work."""

    exit_code = Exit.INTERRUPTED
