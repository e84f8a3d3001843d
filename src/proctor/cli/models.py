"""`proctor models`: which providers there are, whether each is ready, and what models cost."""

from __future__ import annotations

import click

from proctor.errors import Exit


@click.command("models")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """List the providers of models with the APIs they speak, and the models with a price or used in runs.

    A model is named PROVIDER/NAME in a spec; a name without a provider is one of 'local'. Keys are read from
    the environment and are never shown. How to add providers and prices is in docs/how-to/model-gateway.md.
    """
    from proctor.cli.table import bold, print_json, print_table
    from proctor.runs.models import known_models, known_providers
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    settings = load_settings()
    providers = known_providers(settings)
    with open_store(settings.store_url, create=False) as store:
        models = known_models(store, settings)
    if as_json:
        print_json({"providers": providers, "models": models})
        return Exit.OK
    print(bold("Providers"))
    rows = [
        (each["name"], ", ".join(each["apis"]), each["key"], each["missing"] or "ready") for each in providers
    ]
    print_table(("provider", "APIs", "key", "state"), rows)
    print(bold("\nModels, in dollars per million tokens"))
    shown = ("input", "output", "cached", "cache_write")
    rows = [
        (
            each["name"],
            *("unknown" if each[name] is None else f"{each[name]:g}" for name in shown),
            f"{each['requests']:,}" if each["requests"] else "",
        )
        for each in models
    ]
    print_table(
        ("model", *(name.replace("_", " ") for name in shown), "calls here"), rows, right=(1, 2, 3, 4, 5)
    )
    return Exit.OK
