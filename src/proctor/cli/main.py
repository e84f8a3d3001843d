"""The command table. A command's module is imported when that command is called, and no sooner."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from proctor.cli.examples import with_examples
from proctor.cli.terminal import guarded
from proctor.errors import Exit, ProctorError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMPLETING = "_PROCTOR_COMPLETE"
"""Set by a shell that asks what could come next."""

GROUPS = {
    "Measure": {
        "run": "Run a spec: measure experiments, or let agents work on tasks.",
        "plan": "Show what a spec would run, and how long it would take.",
        "time": "Time commands or Python statements, and compare them.",
        "ab": "Compare two versions of your code in lockstep pairs.",
        "race": "Run baseline and candidate until it is known which is worse.",
        "resume": "Finish an interrupted run: only what is missing.",
        "worker": "Execute trials of runs that other processes coordinate.",
        "cancel": "Stop a run for good; results so far are kept.",
        "perf": "Measure Proctor itself on many small episodes.",
    },
    "Agents and tasks": {
        "agents": "List agents, whether each can run here, and install them.",
        "models": "List providers, whether each is ready, and prices.",
        "replay": "Run agents again from recorded model answers.",
        "provider": "Serve scripted models: for tests, free and offline.",
        "tasks": "Check and pack task folders.",
        "datasets": "List, fetch and remove datasets.",
        "vet": "Certify tasks: solvable, not trivial, not flaky.",
        "eval": "Grade the stored results of agents again.",
        "images": "List, pull, import and remove sandbox images.",
    },
    "Judge": {
        "compare": "Compare two stored runs or result files.",
        "gate": "Judge a run by rules, alone or against a baseline.",
        "baseline": "Pin the runs that gates compare with.",
        "aa": "Certify noise: false alarms, and what can be detected.",
        "selftest": "Prove that a slowdown of your code is detected.",
        "history": "Show runs over time, with lasting changes marked.",
        "leaderboard": "Rank the agents of stored runs, ties included.",
    },
    "Look at results": {
        "ls": "List runs.",
        "show": "Show one run.",
        "summarize": "Show pass rates of agents, in all and by task.",
        "logs": "Print or follow the logs of a trial.",
        "watch": "Follow a run, event by event.",
        "report": "Write a run's report again.",
        "rm": "Remove runs.",
    },
    "Serve": {
        "serve": "Serve the API and the web page, and execute submitted runs.",
        "login": "Use a server: commands then work on its runs.",
        "logout": "Forget the server and use this machine's store again.",
        "queue": "Show how much work waits, and how many workers it needs.",
        "load": "Put a server under load, and report rates and losses.",
        "view": "Show the results of this store in a browser, read-only.",
    },
    "Share": {
        "export": "Write a run to a portable folder, or to tables.",
        "import": "Read run folders into the store.",
        "publish": "Write runs as a site of static pages.",
        "receipt": "Pack a run with its digests, for others to verify.",
        "verify": "Recompute every number of a receipt.",
        "keys": "Make and list the keys that sign receipts.",
    },
    "Set up": {
        "list": "List experiments.",
        "new": "Write the first files of an experiment or a task.",
        "db": "Upgrade, copy, restore and check the store.",
        "doctor": "Check this machine: what works, what does not, why.",
        "completion": "Print the completion script of your shell.",
    },
}
"""Heading of `proctor --help` → command → one line of help, in the order of use."""

COMMANDS = {name: line for commands in GROUPS.values() for name, line in commands.items()}
"""The module is `proctor.cli.<name>`, with `_command` behind words of Python."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)

_MODULES = {"import": "import_command", "list": "list_command", "time": "time_command"}


class LazyGroup(click.Group):
    """A group whose help is known without importing any command."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command's module now."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"proctor.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        with_examples(command, cmd_name)
        if COMPLETING in os.environ:
            from proctor.cli.complete import with_completions

            with_completions(command, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, and name the nearest command when there is no such one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, 1)
            hint = f"; did you mean '{near[0]}'?" if near else "; see 'proctor --help'"
            ctx.fail(f"'{args[0]}' is not a command{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands from the table, group by group, in one column."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table: click would import every command to ask for its help."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=line) for name, line in COMMANDS.items() if name.startswith(incomplete)
        ]
        return found or click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="'proctor COMMAND --help' shows the options of a command, with examples.",
)
@click.version_option(package_name="proctor-bench", prog_name="proctor")
@click.pass_context
def group(context: click.Context) -> None:
    """Run benchmarks of code and of AI agents, and trust the numbers."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def _complain(message: str) -> None:
    """Say what went wrong, without the secrets of this environment: it may quote an address or a spec."""
    from proctor.trial.redact import Redactor, secrets_in

    print(f"proctor: {Redactor(secrets_in(os.environ)).text(message)}", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """Run one command and turn what it raises into a sentence and an exit code."""
    atexit.register(gc.freeze)  # or the interpreter looks for garbage in all that it is about to let go of
    with guarded():
        return int(_run(argv))


def _run(argv: list[str] | None) -> Exit:
    try:
        result = group.main(args=argv, prog_name="proctor", standalone_mode=False)
    except click.exceptions.Abort:
        code = Exit.INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        code = Exit.OK
    except click.ClickException as error:
        _complain(_sentence(error))
        code = Exit.USAGE
    except ProctorError as error:
        _complain(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        code = Exit.OK
    except OSError as error:
        code = _refused(error)
    except MemoryError:
        _complain("not enough memory for this; ask for less, or give it more")
        code = Exit.USAGE
    else:
        code = Exit(result) if isinstance(result, int) else Exit.OK
    return code


def _refused(error: OSError) -> Exit:
    """Say which file could not be used, and why: too long a name, no permission, no space."""
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    _complain(f"{where}{error.strerror or error}")
    return Exit.STORE if error.errno in _NO_ROOM else Exit.USAGE


def _sentence(error: click.ClickException) -> str:
    """The error in one sentence; click would print its usage lines above it."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "proctor"
    message = _message(error).rstrip(".")
    more = "" if "--help'" in message else f"; see '{command} --help'"
    if not message[:2].isupper():
        message = message[:1].lower() + message[1:]
    return f"{message}{more}"


def _message(error: click.ClickException) -> str:
    if isinstance(error, click.MissingParameter) and error.param is not None:
        option = error.param.param_type_name == "option"
        name = (
            error.param.opts[0]
            if option
            else error.param.make_metavar(error.ctx or click.Context(click.Command("")))
        )
        return f"{name} is missing"
    if isinstance(error, click.BadParameter) and error.param is not None:
        kind = error.param.type
        if isinstance(kind, click.IntRange | click.FloatRange):
            return f"{error.param.opts[0]}: expected {_range(kind)}, {_found(error.message)}"
    return " ".join(error.format_message().split())


def _range(kind: click.IntRange | click.FloatRange) -> str:
    noun = "a whole number" if isinstance(kind, click.IntRange) else "a number"
    if kind.min is not None and kind.max is not None:
        return f"{noun} from {kind.min} to {kind.max}"
    if kind.min is not None:
        return f"{noun} {'above' if kind.min_open else 'of at least'} {kind.min}"
    return f"{noun} of at most {kind.max}" if kind.max is not None else noun


def _found(message: str) -> str:
    """The value that click's message begins with."""
    return f"found {message.partition(' is not ')[0]}"


if __name__ == "__main__":
    sys.exit(main())
