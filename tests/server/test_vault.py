"""Stored keys: encrypted, given to the runs of their project and to no other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proctor.errors import StoreError, UsageError
from proctor.server.auth.vault import VARIABLE, Vault, environ_of, open_vault
from proctor.server.submit.making import settings_of
from proctor.settings import Settings
from proctor.store.open import open_store
from proctor.store.service.accounts import Project


def test_a_sealed_text_opens_with_its_key_only():
    sealed = Vault(b"one").seal("sk-secret")
    assert b"sk-secret" not in sealed
    assert Vault(b"one").open(sealed) == "sk-secret"
    with pytest.raises(StoreError, match="another one"):
        Vault(b"two").open(sealed)


def test_the_key_is_a_variable_or_a_file_of_the_owner(tmp_path: Path):
    settings = Settings(home=tmp_path)
    sealed = open_vault(settings, {}).seal("x")
    assert open_vault(settings, {}).open(sealed) == "x"
    file = tmp_path / "secret.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert open_vault(settings, {VARIABLE: "k" * 20}).seal("x") != sealed
    with pytest.raises(UsageError, match="too short"):
        open_vault(settings, {VARIABLE: "short"})
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        open_vault(settings, {})
    file.chmod(0o600)
    file.write_text("cut")
    with pytest.raises(UsageError, match="damaged"):
        open_vault(settings, {})


def test_a_project_has_its_own_keys_and_not_the_servers(tmp_path: Path):
    vault, server = Vault(b"one"), {"OPENAI_API_KEY": "server", VARIABLE: "v"}
    with open_store(str(tmp_path / "n.db")) as store:
        store.service.accounts.put_project(Project("red", "Red"))
        store.service.keys.put("red", "OPENAI_API_KEY", vault.seal("red"), hint="", by="ada")
        assert environ_of(store, vault, "red", server) == {"OPENAI_API_KEY": "red"}
        assert environ_of(store, vault, "default", server) == {"OPENAI_API_KEY": "server"}
        store.service.keys.put_for_run("red", "r1", "OPENAI_API_KEY", vault.seal("mine"), by="ada")
        assert environ_of(store, vault, "red", server, "r1") == {"OPENAI_API_KEY": "mine"}
        assert environ_of(store, vault, "red", server, "r2") == {"OPENAI_API_KEY": "red"}


def test_the_servers_own_model_key_is_for_the_default_project(tmp_path: Path):
    settings = Settings(home=tmp_path, model_api_key="k")
    assert settings_of(settings, "default").model_api_key == "k"
    assert settings_of(settings, "red").model_api_key == ""


def test_many_at_once_make_one_key(tmp_path):
    settings = Settings(home=tmp_path / "home")
    with ThreadPoolExecutor(8) as threads:
        vaults = list(threads.map(lambda _: open_vault(settings, {}), range(40)))
    sealed = vaults[0].seal("sk-one")
    assert {each.open(sealed) for each in vaults} == {"sk-one"}
    assert [each.name for each in settings.home.iterdir()] == ["secret.key"]
    assert (settings.home / "secret.key").stat().st_mode & 0o777 == 0o600
