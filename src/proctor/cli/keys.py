"""`proctor keys`: the keys that sign receipts: make one, list them, show the public part."""

from __future__ import annotations

import click

from proctor.errors import Exit


@click.group("keys")
def command() -> None:
    """Keys that sign receipts. The private part stays in the folder of the setting keys_dir."""


@command.command("new")
@click.argument("name", default="default")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def new(name: str, as_json: bool) -> int:
    """Make the key NAME [default] and print its public part, which others need to check your receipts.

    Only you can read the private file. There is no copy of it and no passphrase: keep it safe.
    """
    from proctor.cli.table import print_json, printable
    from proctor.receipt.keys import new_key
    from proctor.settings import load_settings

    made = new_key(load_settings().keys_dir.expanduser(), name)
    if as_json:
        print_json({"name": made.name, "public": made.public, "path": str(made.path)})
        return Exit.OK
    print(f"public   {made.public}")
    print(f"private  {printable(made.path)} (keep it to yourself)")
    return Exit.OK


@command.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_keys(as_json: bool) -> int:
    """List your keys with their public parts, and why one cannot be used."""
    from proctor.cli.table import print_json, print_table, printable
    from proctor.receipt.keys import stored_keys
    from proctor.settings import load_settings

    found = stored_keys(load_settings().keys_dir.expanduser())
    if as_json:
        print_json(
            [{"name": each.name, "public": each.public or None, "problem": each.problem} for each in found]
        )
    elif found:
        rows = [(printable(each.name), each.public or printable(each.problem)) for each in found]
        print_table(("key", "public part"), rows, wrap=(1,))
    else:
        print("No keys. Make one with: proctor keys new")
    return Exit.OK


@command.command("show")
@click.argument("name", default="")
def show(name: str) -> int:
    """Print the public part of the key NAME [your only key, or 'default'], for --trust of others."""
    from proctor.receipt.keys import load_signer
    from proctor.settings import load_settings

    print(load_signer(name, load_settings().keys_dir.expanduser()).public)
    return Exit.OK
