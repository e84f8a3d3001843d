"""`proctor agents`: which agents a spec can name, what each needs, and whether it can run here."""

from __future__ import annotations

import click

from proctor.errors import Exit


@click.command("agents")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """List the agents that are built in, and those that installed packages register.

    A class of your own needs no registration: name it module:Class in the spec. How to write one is in
    docs/how-to/write-an-agent.md.
    """
    from dataclasses import asdict

    from proctor.agents.registry import describe_all
    from proctor.cli.table import bold, print_json, printable
    from proctor.runs.models import known_providers
    from proctor.settings import load_settings

    ready = [each for each in known_providers(load_settings()) if not each["missing"]]
    found = describe_all({api for each in ready for api in each["apis"]})
    if as_json:
        print_json([asdict(agent) | {"ready": agent.ready} for agent in found])
        return Exit.OK
    width = max(len(agent.name) for agent in found)
    for agent in found:
        origin = "" if agent.source == "built in" else f" ({agent.source})"
        lines = [
            "ready" if agent.ready else "cannot run here",
            *([f"speaks {', '.join(agent.apis)}"] if agent.apis else []),
            *(f"needs {each}" for each in agent.needs),
            *(f"missing: {each}" for each in agent.missing),
        ]
        print(f"{bold(printable(agent.name.ljust(width)))}  {printable((agent.line or '–') + origin)}")
        for line in lines:
            print(f"{'':{width}}    {printable(line)}")
    print("\nA class of your own is named module:Class in a spec.")
    return Exit.OK
