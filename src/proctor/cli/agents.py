"""`proctor agents`: which agents a spec can name, what each needs, whether it is ready; and install them."""

from __future__ import annotations

import click

from proctor.errors import Exit


@click.group("agents", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> int:
    """List the agents that are built in, and those that installed packages register.

    A class of your own needs no registration: name it module:Class in the spec. How to write one is in
    docs/how-to/write-an-agent.md.
    """
    if context.invoked_subcommand:
        return Exit.OK
    from dataclasses import asdict

    from proctor.agents.registry import describe_all
    from proctor.cli.show import size_text
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
            *(f"installed: {each.version}, {size_text(each.size_bytes)}" for each in agent.installed),
            *(f"needs {each}" for each in agent.needs),
            *(f"missing: {each}" for each in agent.missing),
        ]
        print(f"{bold(printable(agent.name.ljust(width)))}  {printable((agent.line or '–') + origin)}")
        for line in lines:
            print(f"{'':{width}}    {printable(line)}")
    print("\nA class of your own is named module:Class in a spec.")
    return Exit.OK


@command.command("install")
@click.argument("name")
@click.option("--version", default="", metavar="V", help="Another version than the one that was tried.")
def install_agent(name: str, version: str) -> int:
    """Install a command-line agent on this machine, from npm or PyPI.

    Sandboxes show its folder read-only, so no trial downloads anything. It is in the cache of Proctor's home.
    A spec that wants another version than the default names it: agent_options.version.

    Exit code 2: there is no such agent. Exit code 4: a registry does not give it.
    """
    from proctor.agents.installed.folders import install
    from proctor.agents.registry import find_installable, package_of
    from proctor.cli.show import size_text
    from proctor.cli.table import say
    from proctor.settings import load_settings

    agent = find_installable(name)
    found = install(load_settings().cache_dir, package_of(agent), version or agent.version, agent.recipe, say)
    print(f"{found.name} {found.version} is installed: {size_text(found.size_bytes)}.")
    return Exit.OK


@command.command("remove")
@click.argument("name")
@click.option("--version", default="", metavar="V", help="Only this version; default: all.")
def remove_agent(name: str, version: str) -> int:
    """Remove an installed agent from this machine. Runs that use it fail."""
    from proctor.agents.installed.folders import remove
    from proctor.agents.registry import find_installable, package_of
    from proctor.settings import load_settings

    for each in remove(load_settings().cache_dir, package_of(find_installable(name)), version):
        print(f"{each.name} {each.version} is removed.")
    return Exit.OK
