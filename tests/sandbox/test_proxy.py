"""The proxy of the allow-list by itself."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

import pytest

from proctor.quota import Pool
from proctor.sandbox import proxy as proxying
from proctor.sandbox.network_rules import AddressRules

LOOPBACK = AddressRules(opened=(ipaddress.ip_network("127.0.0.1/32"),))
"""Servers of these tests are on the loopback, which no setting can open."""


@pytest.fixture
async def proxy(anyio_backend):
    """A proxy on a loopback port, its list and its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    made = proxying.AllowListProxy(["127.0.0.1", "*.example.org", "localhost"], LOOPBACK)
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
    assert proxying.allowed("Packages.Example.", allow)
    assert proxying.allowed("files.fileshosted.example", allow)
    for other in (
        "fileshosted.example",
        "evilpackages.example",
        "packages.example.evil.net",
        "x.packages.example",
        "",
    ):
        assert not proxying.allowed(other, allow)


def test_the_environment_names_the_proxy_and_spares_the_loopback():
    found = proxying.proxy_environment()
    assert found["https_proxy"] == found["HTTP_PROXY"] == "http://127.0.0.1:3128"
    assert "127.0.0.1" in found["no_proxy"]


def test_targets_are_read_with_and_without_a_port():
    assert proxying._target("GET", "http://h/p?q") == ("h", 80, "/p?q")
    assert proxying._target("GET", "http://h:81") == ("h", 81, "/")
    assert proxying._target("GET", "http://[::1]:8/x") == ("::1", 8, "/x")
    assert proxying._target("GET", "http://[::1]/x") == ("::1", 80, "/x")
    assert proxying._target("CONNECT", "[::1]:443") == ("::1", 443, "")


@pytest.mark.anyio
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_host_of_the_list_opens_no_private_address(host):
    """Neither a name nor an address on a task's own list is trusted with this machine."""
    reached = []
    server = await asyncio.start_server(lambda reader, writer: reached.append(writer.close()), "127.0.0.1", 0)
    made = proxying.AllowListProxy([host], AddressRules())
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    await made.start(listener)
    port = server.sockets[0].getsockname()[1]
    for request in (f"GET http://{host}:{port}/ HTTP/1.1", f"CONNECT {host}:{port} HTTP/1.1"):
        assert b"502" in await talk(address, f"{request}\r\n\r\n".encode())
    await made.stop()
    server.close()
    await server.wait_closed()
    assert reached == []


def test_a_range_on_a_list_holds_for_addresses_only():
    allow = ("192.0.2.0/24", "*.2.7")
    assert proxying.allowed("192.0.2.7", allow)
    assert not proxying.allowed("192.0.3.7", allow)
    assert not proxying.allowed("10.9.2.7", allow)
    assert not proxying.allowed("192.0.2.example", allow)


@pytest.fixture
async def bounded(anyio_backend):
    """A proxy with small bounds, its address, and a server that says nothing."""
    bounds = proxying.ProxyBounds(connections=4, own_connections=4, head_s=0.2, idle_s=0.2, half_s=0.2)
    listener = socket.create_server(("127.0.0.1", 0))
    made = proxying.AllowListProxy(["127.0.0.1"], LOOPBACK, bounds)
    await made.start(listener)

    async def silent(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    yield made, listener.getsockname(), server.sockets[0].getsockname()[1]
    await made.stop()
    server.close()


@pytest.mark.anyio
async def test_a_sandbox_has_so_many_connections_and_no_more(bounded):
    _, address, _ = bounded
    opened = [await asyncio.open_connection(*address) for _ in range(6)]
    async with asyncio.timeout(10):
        said = [await reader.read() for reader, _ in opened]
    assert [each[:12] for each in said].count(b"HTTP/1.1 429") == 2
    assert said.count(b"") == 4, "a head that never comes is not waited for"
    assert b" 403 " in await talk(address, b"CONNECT evil.org:443 HTTP/1.1\r\n\r\n")
    for _, writer in opened:
        writer.close()


@pytest.mark.anyio
@pytest.mark.parametrize("half", [False, True])
async def test_a_tunnel_through_which_nothing_passes_is_closed(bounded, half):
    made, address, port = bounded
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % port)
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    if half:
        writer.write_eof()
    async with asyncio.timeout(10):
        assert await reader.read() == b""
        while made._open:  # until its place is free
            await asyncio.gather(*made._open, return_exceptions=True)
    assert made._quota.held == 0
    writer.close()


@pytest.mark.anyio
async def test_connections_of_one_sandbox_leave_its_neighbour_its_own(monkeypatch, anyio_backend):
    pool = Pool(2)
    monkeypatch.setattr(proxying, "_connections", lambda: pool)
    bounds = proxying.ProxyBounds(own_connections=1, connections=100)
    greedy, modest = (bounds.connections_of_sandbox() for _ in range(2))
    assert [greedy.take() for _ in range(5)] == [True] * 3 + [False] * 2
    assert modest.take()
