"""Networks of real sandboxes, and the proxy of the allow-list by itself."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from pathlib import Path

import pytest

from proctor.errors import SandboxError
from proctor.sandbox import network

both = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "fallback"], indirect=True)


def own_address():
    """An address of this machine that is not its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("no network interface besides the loopback")
        return probe.getsockname()[0]


async def answer(reader, writer):
    request = await reader.readuntil(b"\r\n\r\n")
    body = request.split(b"\r\n")[0]
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    await writer.drain()
    writer.close()


async def fetch(sandbox, url):
    code = (
        "import sys, urllib.request, urllib.error\n"
        "try: print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())\n"
        "except urllib.error.HTTPError as error: print(error.code)\n"
        "except OSError as error: print('failed')\n"
    )
    result = await sandbox.exec(["python3", "-c", code, url], timeout_s=30)
    return result.stdout.decode().strip()


@both
@pytest.mark.anyio
@pytest.mark.needs("bubblewrap")
@pytest.mark.skipif(
    not shutil.which("slirp4netns") or not Path("/dev/net/tun").exists(), reason="needs slirp4netns"
)
async def test_a_public_network_reaches_out_but_not_to_the_host_s_loopback(make):
    outside = await asyncio.start_server(answer, own_address(), 0)
    loopback = await asyncio.start_server(answer, "127.0.0.1", 0)
    sandbox = make(network="public")
    await sandbox.start()
    port = outside.sockets[0].getsockname()[1]
    assert await fetch(sandbox, f"http://{own_address()}:{port}/a") == "GET /a HTTP/1.1"
    hidden = loopback.sockets[0].getsockname()[1]
    for address in ("127.0.0.1", "10.0.2.2", "169.254.169.254"):
        assert await fetch(sandbox, f"http://{address}:{hidden}/") == "failed"
    assert (await sandbox.exec(["cat", "/etc/resolv.conf"])).stdout == b"nameserver 10.0.2.3\n"
    await sandbox.stop()
    outside.close()
    loopback.close()


@both
@pytest.mark.anyio
@pytest.mark.needs("bubblewrap")
async def test_an_allow_list_reaches_its_hosts_and_nobody_else(make):
    server = await asyncio.start_server(answer, own_address(), 0)
    port = server.sockets[0].getsockname()[1]
    sandbox = make(network="allowlist", allowed_hosts=(own_address(),))
    await sandbox.start()
    assert await fetch(sandbox, f"http://{own_address()}:{port}/b?c=d") == "GET /b?c=d HTTP/1.1"
    assert await fetch(sandbox, "http://example.org/") == "403"
    assert (
        await sandbox.exec(["sh", "-c", "ls /sys/class/net; cat /proc/net/dev | grep -c :"])
    ).stdout == b"1\n"
    await sandbox.stop()
    server.close()


@pytest.mark.anyio
async def test_public_without_slirp4netns_says_what_to_install(monkeypatch):
    monkeypatch.setattr(network.shutil, "which", lambda name: None)
    with pytest.raises(SandboxError, match="install it"):
        await network.PublicNetwork().start(None, 1)


@pytest.fixture
async def proxy(anyio_backend):
    """A proxy on a loopback port, its list and its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    made = network.AllowListProxy(["127.0.0.1", "*.example.org", "localhost"])
    await made.start(listener)
    yield made, address
    await made.stop()


async def talk(address, request):
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    await writer.drain()
    reply = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return reply


@pytest.mark.anyio
async def test_a_tunnel_carries_bytes_both_ways(proxy):
    async def echo(reader, writer):
        writer.write(b"got " + await reader.read())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection(*proxy[1])
    writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % port)
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(b"data")
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 10) == b"got data"
    writer.close()
    server.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"CONNECT evil.org:443 HTTP/1.1\r\n\r\n", b"403"),
        (b"CONNECT example.org:443 HTTP/1.1\r\n\r\n", b"403"),
        (b"GET http://127.0.0.1.evil.org/ HTTP/1.1\r\n\r\n", b"403"),
        (b"GET http://evil.org:80/@127.0.0.1/ HTTP/1.1\r\n\r\n", b"403"),
        (b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n", b"502"),
        (b"CONNECT localhost:1 HTTP/1.1\r\n\r\n", b"502"),
        (b"nonsense\r\n\r\n", b""),
        (b"GET ftp://127.0.0.1/ HTTP/1.1\r\n\r\n", b""),
        (b"CONNECT 127.0.0.1:x HTTP/1.1\r\n\r\n", b""),
        (b"GET / HTTP/1.1\r\n" + b"x" * 40_000, b""),
    ],
)
async def test_other_hosts_and_nonsense_are_refused(proxy, request_bytes, expected):
    reply = await talk(proxy[1], request_bytes)
    assert expected in reply.split(b"\r\n")[0]
    assert bool(reply) == bool(expected)


@pytest.mark.anyio
async def test_a_second_request_on_a_connection_cannot_skip_the_list(proxy):
    async def count(reader, writer):
        seen.append(await reader.read())
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    seen = []
    server = await asyncio.start_server(count, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    head = f"GET http://127.0.0.1:{port}/x HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n".encode()
    reader, writer = await asyncio.open_connection(*proxy[1])
    writer.write(head + b"Proxy-Authorization: secret\r\n\r\n")
    writer.write_eof()
    assert b"200" in await asyncio.wait_for(reader.read(), 10)
    writer.close()
    assert seen == [b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"]
    server.close()


def test_a_list_matches_names_and_what_is_below_a_star():
    allow = ("packages.example", "*.FilesHosted.example")
    assert network.allowed("Packages.Example.", allow)
    assert network.allowed("files.fileshosted.example", allow)
    for other in (
        "fileshosted.example",
        "evilpackages.example",
        "packages.example.evil.net",
        "x.packages.example",
        "",
    ):
        assert not network.allowed(other, allow)


def test_the_environment_names_the_proxy_and_spares_the_loopback():
    found = network.proxy_environment()
    assert found["https_proxy"] == found["HTTP_PROXY"] == "http://127.0.0.1:3128"
    assert "127.0.0.1" in found["no_proxy"]


def test_targets_are_read_with_and_without_a_port():
    assert network._target("GET", "http://h/p?q") == ("h", 80, "/p?q")
    assert network._target("GET", "http://h:81") == ("h", 81, "/")
    assert network._target("GET", "http://[::1]:8/x") == ("::1", 8, "/x")
    assert network._target("GET", "http://[::1]/x") == ("::1", 80, "/x")
    assert network._target("CONNECT", "[::1]:443") == ("::1", 443, "")


@pytest.fixture
def network_of(make):
    """Which network a sandbox had in which a script was run. All are held: a number is never given again."""
    held = []

    async def found(script="pass", **limits):
        sandbox = make(**limits)
        await sandbox.start()
        held.append(os.open(f"/proc/{sandbox.init_pid}/ns/net", os.O_RDONLY))
        await sandbox.exec(["python3", "-c", script], timeout_s=30)
        await sandbox.leave()
        await sandbox.stop()
        return os.fstat(held[-1]).st_ino

    yield found
    for each in held:
        os.close(each)


_CONNECT = "import socket; socket.socket(socket.{}, socket.{}).connect_ex(({!r}, 9))"


@pytest.mark.anyio
@pytest.mark.needs("bubblewrap")
async def test_a_network_that_nobody_used_is_used_again(network_of):
    first = await network_of("import socket; socket.socket().bind(('127.0.0.1', 80))")
    assert {await network_of() for _ in range(3)} == {first}


@pytest.mark.anyio
@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize(
    "script",
    [
        _CONNECT.format("AF_INET", "SOCK_STREAM", "127.0.0.1"),
        _CONNECT.format("AF_INET", "SOCK_STREAM", "192.0.2.1"),
        "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
        "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('::1', 9))",
    ],
    ids=["connected", "without a route", "sent", "sent by IPv6"],
)
async def test_a_network_that_was_used_is_nobody_else_s(network_of, script):
    used = await network_of(script)
    assert await network_of() != used
    assert await network_of() != used


@pytest.mark.anyio
@pytest.mark.needs("bubblewrap")
async def test_a_network_with_a_socket_still_open_in_it_is_nobody_else_s(make, network_of):
    """A socket on its way to another one that is on its way to it outlives both its processes for a while."""
    script = (
        "import array, socket\n"
        "near, far = socket.socketpair()\n"
        "server = socket.create_server(('127.0.0.1', 8080))\n"
        "rights = array.array('i', [near.fileno(), far.fileno(), server.fileno()])\n"
        "near.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])\n"
    )
    await network_of(script)
    listen = "import socket; socket.create_server(('127.0.0.1', 8080)); print('free')"
    for _ in range(3):
        sandbox = make()
        await sandbox.start()
        assert (await sandbox.exec(["python3", "-c", listen])).stdout == b"free\n"
        await sandbox.stop()


@pytest.mark.anyio
@pytest.mark.needs("bubblewrap")
async def test_a_network_that_others_entered_is_nobody_else_s(network_of):
    entered = await network_of(network="allowlist", allowed_hosts=("example.org",))
    assert await network_of() != entered
    assert await network_of(network="allowlist", allowed_hosts=()) != entered
