"""The command table. A command's module is imported when that command is called, and no sooner."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from proctor.errors import Exit, ProctorError

COMMANDS = {
    "run": "Run a spec: measure experiments or roll out agents on tasks.",
    "plan": "Print what a spec would run, how many trials, and how long.",
    "ab": "Measure two versions in lockstep pairs and give a verdict.",
    "selftest": "Prove on your own experiment that the gate would fire.",
    "perf": "Measure the harness on many small episodes, and hold it to its limits.",
    "compare": "Compare two stored runs or result files.",
    "gate": "Judge a run by rules, alone or against a baseline.",
    "baseline": "Pin the runs that gates are held against.",
    "aa": "A noise certificate: how often your suite cries wolf, and what it can detect.",
    "vet": "A task certificate: oracle, no-op and perturbations; flaky, leaking, rotting.",
    "history": "A series of runs over time, with its change points.",
    "receipt": "Pack a run with its digests, for others to verify.",
    "verify": "Recompute every number of a receipt, and name what was changed.",
    "report": "Write or rewrite a run's report.",
    "ls": "List runs.",
    "show": "Show one run.",
    "rm": "Remove runs.",
    "resume": "Finish an interrupted run: only what is missing.",
    "cancel": "End a run for good; what has ended is kept.",
    "watch": "Follow a run, event by event.",
    "summarize": "Pass rates, matrix and tasks of a run of rollouts.",
    "eval": "Grade the workspaces of a run again; no agent runs.",
    "export": "Write a run to a portable folder.",
    "import": "Read a run folder into the store.",
    "list": "List experiments.",
    "tasks": "Check and pack task folders.",
    "new": "Scaffold an experiment or a task.",
    "images": "List images for sandboxes, import one from a file, remove what is unused.",
    "doctor": "Check this machine and say what works, what does not, and why.",
}
"""Name → one line of help. The module is `proctor.cli.<name>`, with `_command` behind Python keywords."""

_MODULES = {"import": "import_command", "list": "list_command"}


class LazyGroup(click.Group):
    """A group whose help is known without importing any command."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """In the order of the table, which is the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command's module now."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"proctor.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
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
        """List the commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="proctor-bench", prog_name="proctor")
def group() -> None:
    """Run benchmarks of code and of AI agents, and trust the numbers."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and turn what it raises into a sentence and an exit code."""
    try:
        result = group.main(args=argv, prog_name="proctor", standalone_mode=False)
    except click.exceptions.Abort:
        code = Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = Exit.USAGE
    except ProctorError as error:
        print(f"proctor: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        code = Exit.OK
    else:
        code = Exit(result) if isinstance(result, int) else Exit.OK
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
