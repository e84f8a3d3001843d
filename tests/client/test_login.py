"""Which server commands talk to, and where tokens are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.client.credentials import Server, log_in, log_out, server_of
from proctor.errors import UsageError
from proctor.settings import Settings


def test_a_login_holds_until_a_logout(one_server, run_command, tmp_path: Path):
    assert "store of this machine" in run_command("login", url="").out
    ended = run_command("login", one_server.address, url="")
    assert ended.code == 0, ended.err
    file = tmp_path / "servers.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert one_server.address in run_command("login", url="").out
    assert run_command("ls", url="").code == 0
    assert run_command("login", "--json", url="").data["server"] == one_server.address
    assert "Forgot" in run_command("logout", url="").out
    assert json.loads(file.read_text()) == {"current": "", "tokens": {}}
    assert "no server" in run_command("logout", url="").out


def test_the_environment_goes_before_a_login(tmp_path: Path):
    file = tmp_path / "deep" / "servers.json"
    log_in(file, Server("https://a.example", "pt_a"))
    log_in(file, Server("https://b.example", "pt_b"))
    assert server_of(Settings(login_file=file)) == Server("https://b.example", "pt_b")
    assert server_of(Settings(login_file=file, url="https://a.example/")) == Server(
        "https://a.example", "pt_a"
    )
    assert server_of(Settings(login_file=file, url="https://c.example", token="pt_c")).token == "pt_c"
    assert server_of(Settings(login_file=file, url="local")) is None
    assert log_out(file) == "https://b.example"
    assert server_of(Settings(login_file=file)) is None


def test_a_file_that_others_may_read_is_refused(tmp_path: Path):
    file = tmp_path / "servers.json"
    log_in(file, Server("https://a.example", "pt_a"))
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        server_of(Settings(login_file=file))
    file.chmod(0o600)
    file.write_text("[]")
    with pytest.raises(UsageError, match="log in again"):
        server_of(Settings(login_file=file))


def test_a_wrong_token_and_a_server_that_is_not_there(serve, run_command):
    server = serve("--tokens")
    refused = run_command("login", server.address, "--token", "pt_wrong", url="")
    assert (refused.code, "unknown" in refused.err) == (2, True)
    token = next(line for line in server.said if "pt_" in line).rpartition(" ")[2]
    assert run_command("login", server.address, "--token", token, url="").code == 0
    assert run_command("ls", url="").code == 0
    assert token not in run_command("login", url="").out
    server.stop()
    gone = run_command("login", server.address, "--token", token, url="")
    assert (gone.code, "does not answer" in gone.err) == (5, True)
