"""Networks of real sandboxes. No packet leaves this machine: the outside is a namespace of our own."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.addresses import own_address

from proctor.errors import SandboxError
from proctor.processes import all_processes, send_signal
from proctor.sandbox import network as sandbox_network
from proctor.sandbox.network_rules import NetworkRules
from proctor.sandbox.probe import ADDRESS, an_outside

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]
needs_public = pytest.mark.needs("slirp4netns")


async def answer(reader, writer):
    request = await reader.readuntil(b"\r\n\r\n")
    body = request.split(b"\r\n")[0]
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    await writer.drain()
    writer.close()


async def fetch(sandbox, url, **options):
    code = (
        "import sys, urllib.request, urllib.error\n"
        "try: print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())\n"
        "except urllib.error.HTTPError as error: print(error.code)\n"
        "except OSError as error: print('failed')\n"
    )
    result = await sandbox.exec(["python3", "-c", code, url], timeout_s=30, **options)
    return result.stdout.decode().strip()


@pytest.fixture
async def outside(backend):
    """Everything that a sandbox could reach: a server that answers at every address."""
    async with an_outside(backend) as place:
        yield place


NOT_PUBLIC = (
    "10.0.2.2", "10.0.2.5", "10.1.2.3", "172.20.0.1", "192.168.1.1", "100.100.100.200", "169.254.169.254",
    "168.63.129.16", "192.0.2.7", "198.18.0.1", "203.0.113.9", "240.0.0.1",
)  # fmt: skip


@needs_public
async def test_a_public_network_reaches_the_internet_and_nothing_else(outside, make):
    sandbox = make(network="public")
    await sandbox.start()
    assert await fetch(sandbox, f"http://{ADDRESS}/a") == "proctor"
    for address in (*NOT_PUBLIC, "127.0.0.1", own_address()):
        assert await fetch(sandbox, f"http://{address}/") == "failed", address
    assert (await sandbox.exec(["cat", "/etc/resolv.conf"])).stdout == b"nameserver 10.0.2.3\n"
    await sandbox.stop()


@needs_public
async def test_each_address_of_these_tests_would_be_reached_without_the_routes(outside, make):
    """What is refused above is refused by the routes: they are taken away from outside, and it answers."""
    sandbox = make(network="public")
    await sandbox.start()
    keeper = await outside._backend.keeper()
    inside = f"--net=/proc/{sandbox.init_pid}/ns/net"
    assert await keeper.run(["nsenter", inside, "ip", "route", "flush", "type", "unreachable"]) == 0
    for address in set(NOT_PUBLIC) - {"10.0.2.2", "240.0.0.1"}:
        assert await fetch(sandbox, f"http://{address}/") == "proctor", address
    await sandbox.stop()


@needs_public
async def test_root_inside_cannot_take_the_routes_away(outside, make):
    sandbox = make(network="public")
    await sandbox.start()
    for words in (
        "route flush type unreachable", "route del unreachable 10.0.0.0/8", "link set tap0 down",
        "route add 10.1.2.3/32 via 10.0.2.2 dev tap0", "addr add 10.1.2.4/24 dev tap0",
        "neigh add 10.0.2.5 lladdr 52:55:0a:00:02:02 dev tap0", "rule add pref 1 lookup 99",
    ):  # fmt: skip
        result = await sandbox.exec(["ip", *words.split()], user="root")
        assert result.exit_code != 0, words
    assert await fetch(sandbox, "http://10.1.2.3/", user="root") == "failed"
    await sandbox.stop()


@needs_public
async def test_network_allow_opens_what_it_names_and_no_more(backend, outside, make):
    backend.network_rules = NetworkRules(
        allow=("10.1.2.3", "192.168.0.0/16"), outside=backend.network_rules.outside
    )
    sandbox = make(network="public")
    await sandbox.start()
    for address in ("10.1.2.3", "192.168.1.1", ADDRESS):
        assert await fetch(sandbox, f"http://{address}/") == "proctor", address
    for address in ("10.1.2.4", "172.20.0.1", "169.254.169.254"):
        assert await fetch(sandbox, f"http://{address}/") == "failed", address
    await sandbox.stop()


@needs_public
async def test_a_network_that_ends_by_itself_is_noticed_and_one_that_was_ended_is_not(outside, make):
    sandbox, other = make(network="public"), make(network="public")
    await sandbox.start()
    await other.start()
    named = f"/proc/{sandbox.init_pid}/ns/net"
    (carrier,) = [
        each
        for each in all_processes()
        if named in (words := Path(f"/proc/{each.pid}/cmdline").read_text().split("\0"))
        and words[0] == "slirp4netns"
    ]
    send_signal(carrier, signal.SIGKILL)
    async with asyncio.timeout(30):
        while "network_lost" not in sandbox.info().ledger:  # noqa: ASYNC110 - the loop reads it of a process
            await asyncio.sleep(0.01)
    assert "slirp4netns" in sandbox.info().ledger["network_lost"]
    await other.set_network("none")
    for each in (sandbox, other):
        await each.stop()
    assert "network_lost" not in other.info().ledger


@needs_public
async def test_the_network_of_a_running_sandbox_changes_and_changes_back(outside, make):
    sandbox = make()
    await sandbox.start()
    url = f"http://{ADDRESS}/"
    for network, found in (
        ("none", "failed"),
        ("public", "proctor"),
        ("none", "failed"),
        ("public", "proctor"),
    ):
        await sandbox.set_network(network)
        assert await fetch(sandbox, url) == found
        devices = (await sandbox.exec(["cat", "/proc/net/dev"])).stdout.decode()
        assert ("tap0" in devices) == (network == "public")
    await sandbox.set_network("allowlist", ["example.org"])
    assert await fetch(sandbox, url) == "403"
    await sandbox.set_network("public")
    assert await fetch(sandbox, "http://10.1.2.3/") == "failed"
    assert sandbox.info().enforced["network"] == "network namespace: none, public, allowlist"
    await sandbox.stop()


async def test_a_kept_port_of_the_proxy_does_not_stop_it(make):
    sandbox = make()
    await sandbox.start()
    script = (
        "import socket, time; s = socket.create_server(('127.0.0.1', 3128))\n"
        "print('up', flush=True); time.sleep(1000)"
    )
    seen = asyncio.Event()
    running = asyncio.create_task(
        sandbox.exec(["python3", "-c", script], on_output=lambda stream, data: seen.set())
    )
    await seen.wait()
    await sandbox.set_network("allowlist", ["example.org"])
    assert await fetch(sandbox, "http://other.example/") == "403"
    await sandbox.end_processes()
    await running
    await sandbox.stop()


async def test_an_allow_list_reaches_its_hosts_and_nobody_else(backend, make):
    server = await asyncio.start_server(answer, own_address(), 0)
    port = server.sockets[0].getsockname()[1]
    sandbox = make(network="allowlist", allowed_hosts=(own_address(),))
    await sandbox.start()
    url = f"http://{own_address()}:{port}/b?c=d"
    assert await fetch(sandbox, url) == "502"
    backend.network_rules = NetworkRules(allow=(own_address(),))
    opened = make(network="allowlist", allowed_hosts=(own_address(),))
    await opened.start()
    assert await fetch(opened, url) == "GET /b?c=d HTTP/1.1"
    assert await fetch(opened, "http://example.org/") == "403"
    assert (
        await opened.exec(["sh", "-c", "ls /sys/class/net; cat /proc/net/dev | grep -c :"])
    ).stdout == b"1\n"
    await sandbox.stop()
    await opened.stop()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("network", ["public", "allowlist"])
async def test_a_name_that_is_to_be_opened_and_has_no_address_is_an_error(backend, make, network):
    backend.network_rules = NetworkRules(allow=("no-such-name.invalid",))
    sandbox = make(network=network)
    with pytest.raises(SandboxError, match=r"network_allow: 'no-such-name.invalid' has no address"):
        await sandbox.start()


async def test_public_without_slirp4netns_says_what_to_install(make, monkeypatch):
    monkeypatch.setattr(sandbox_network.shutil, "which", lambda name: None)
    with pytest.raises(SandboxError, match="install the package slirp4netns"):
        await make(network="public").start()


async def test_a_network_that_does_not_come_up_is_an_error_with_the_reason(make):
    """A warning on slirp4netns's output is not taken for the sign that it is ready."""
    sandbox = make()
    await sandbox.start()
    public = sandbox_network.PublicNetwork(_refusing, NetworkRules(), pytest.fail)
    with pytest.raises(SandboxError, match=r"did not come up: .*no tun for you.*--network none"):
        await public.start(sandbox.init_pid)
    await sandbox.stop()


async def _refusing(argv, fds):
    """As slirp4netns without a right to the device: it warns on its output, then tells why it ends."""
    script = "echo WARNING: experimental; echo no tun for you >&2; exit 1"
    assert argv[0] == "sh"
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", argv[2], "sh", "sh", "-c", script, stdin=fds[0], stdout=fds[1], stderr=fds[2]
    )
    for fd in fds:
        os.close(fd)
    return await process.wait()


@pytest.mark.needs("root")
async def test_a_tun_device_of_root_s_alone_stays_so(outside, make):
    """The keeper has one of its own; this machine's is never touched."""
    before = Path("/dev/net/tun").stat()
    sandbox = make(network="public")
    await sandbox.start()
    await sandbox.stop()
    after = Path("/dev/net/tun").stat()
    assert (before.st_mode, before.st_ino, before.st_uid) == (after.st_mode, after.st_ino, after.st_uid)


async def test_every_sandbox_has_a_network_of_its_own(make):
    """All are held while they are compared: a number is never given again then."""
    held = []
    for _ in range(3):
        sandbox = make()
        await sandbox.start()
        held.append(os.open(f"/proc/{sandbox.init_pid}/ns/net", os.O_RDONLY))
        await sandbox.stop()
    assert len({os.fstat(each).st_ino for each in held}) == 3
    for each in held:
        os.close(each)


async def test_who_is_cancelled_while_a_network_ends_does_not_go_on(anyio_backend):
    ended = asyncio.Event()

    async def carry() -> int:
        await ended.wait()
        return 0

    public = sandbox_network.PublicNetwork(_refusing, NetworkRules(), pytest.fail)
    public._task = asyncio.create_task(carry())
    went_on: list[str] = []

    async def attempt() -> None:
        await public.stop()
        went_on.append("to the judge")

    working = asyncio.create_task(attempt())
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert went_on == []
    ended.set()
