"""Every error that Proctor raises on purpose, and what each means to a shell and to HTTP.

ProctorError
├── UsageError            the request itself is wrong: exit 2, HTTP 400
│   ├── SpecError         a spec file is wrong, with file:line:column
│   ├── ParamError        a parameter does not fit its experiment
│   ├── TaskError         a task folder or archive is wrong
│   ├── SideError         one side of a comparison raised, hung, died or ran the wrong code
│   ├── RunHeldError      another process executes the run; says which, and until when: HTTP 409
│   ├── RunStateError     the run is over, or at work, and so cannot be changed like this: HTTP 409
│   └── NotFoundError     no such run, trial, experiment, agent …: HTTP 404
├── StoreError            the store cannot be read or written: exit 5, HTTP 503
├── FenceError            a result came with a lease that is no longer ours
├── MissingExtraError     an optional package is needed; says how to install it: exit 2
├── SandboxError          the sandbox failed, not what ran in it: exit 4
│   ├── LastingSandboxError  and will fail again until something is changed: it is not tried again
│   ├── HostError         the machine around it failed, which nothing inside can cause
│   └── ImageError        its root file system could not be made
│       └── LastingImageError  and cannot be until something is changed
├── FetchError            a dataset could not be fetched from where it is: exit 4
├── ProviderError         the model's service refused or failed: exit 4
│   └── LastingProviderError  and will again until something is changed: it is not tried again
├── CommandFailedError    a command that was to be timed ended with an error: exit 1
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


EXIT_ORDER = (
    "Of a run with gates the gate decides. Otherwise 1 comes before 4: what an author has to repair fails "
    "again, what the infrastructure lost may not."
)
"""Which code a run has when several apply."""
EXIT_MEANING = {
    Exit.OK: "every trial was judged or measured (an agent that fails a task is a result); the gate passed; "
    "no worse",
    Exit.WORSE: "a gate or comparison says worse; or an author has something to repair: an experiment that "
    "raises, an invalid task, a verifier that breaks",
    Exit.USAGE: "wrong usage or bad input; nothing was started and nothing was changed",
    Exit.INCONCLUSIVE: "inconclusive: the data is not enough for a verdict",
    Exit.INFRASTRUCTURE: "trials were lost to the infrastructure or to a model's provider",
    Exit.STORE: "the store cannot be read or written",
    Exit.INTERRUPTED: "interrupted; finished trials are saved",
}


class ProctorError(Exception):
    """Root of the tree; `str()` of it is a whole sentence for a person."""

    exit_code: Exit = Exit.WORSE
    http_status: int = 500


class UsageError(ProctorError):
    """The request is wrong; the caller can fix it."""

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


class RunHeldError(UsageError):
    """Another process executes the run; nothing was changed."""

    http_status = 409


class RunStateError(UsageError):
    """The present state of the run does not allow this; nothing was changed."""

    http_status = 409


class NotFoundError(UsageError):
    """Nothing has that name."""

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

    lasting: bool = False
    """Whether trying again cannot help."""

    exit_code = Exit.INFRASTRUCTURE
    http_status = 502


class LastingSandboxError(SandboxError):
    """The sandbox cannot do what is asked of it here; trying again does not help."""

    lasting = True


class ImageError(SandboxError):
    """The root file system of a sandbox could not be made."""


class HostError(SandboxError):
    """The machine around a sandbox failed: its disk, its keeper, its engine. Nothing inside causes it."""


class LastingImageError(ImageError):
    """A root file system that cannot be made here as things are; trying again does not help."""

    lasting = True


def is_lasting(error: BaseException) -> bool:
    """Whether trying again cannot help: true of an error, or of the one that it was raised from."""
    cause: BaseException | None = error
    while cause is not None:
        if getattr(cause, "lasting", False):
            return True
        cause = cause.__cause__
    return False


class FetchError(ProctorError):
    """A server or the network failed before a dataset was here; trying again may work."""

    exit_code = Exit.INFRASTRUCTURE
    http_status = 502


class ProviderError(ProctorError):
    """The model's service refused, limited or failed."""

    exit_code = Exit.INFRASTRUCTURE
    http_status = 502


class LastingProviderError(ProviderError):
    """The model's service has no such model; trying again does not help."""

    lasting = True


class CommandFailedError(ProctorError):
    """A command that was to be timed ended with an error; its author must mend it."""

    http_status = 422


class Interrupted(ProctorError):  # noqa: N818 - it is not an error, like KeyboardInterrupt
    """A person stopped the work."""

    exit_code = Exit.INTERRUPTED
