"""Whom requests on others' behalf may connect to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Self

import aiohttp
import pytest
from tests.addresses import own_address
from yarl import URL

from proctor.outbound import Outbound, OutOfReachError, Reach
from proctor.sandbox.network_rules import AddressRules

pytestmark = [pytest.mark.anyio]


class Counting:
    """A server that answers every request, and counts the connections."""

    def __init__(self) -> None:
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("address", "allow", "may"),
    [
        ("8.8.8.8", (), True),
        ("2001:4860:4860::8888", (), True),
        ("10.1.2.3", (), False),
        ("100.64.0.1", (), False),
        ("169.254.169.254", (), False),
        ("0.0.0.0", (), False),
        ("224.0.0.1", (), False),
        ("::1", (), False),
        ("::", (), False),
        ("::ffff:10.1.2.3", (), False),
        ("64:ff9b::a01:203", (), False),
        ("2002:a01:203::1", (), False),
        ("fe80::1%lo", (), False),
        ("10.1.2.3", ("10.0.0.0/8",), True),
        ("127.0.0.2", ("127.0.0.0/8",), False),
        ("127.0.0.2", ("127.0.0.2",), True),
        ("0.0.0.0", ("0.0.0.0/8",), False),
    ],
)
async def test_only_the_internet_and_what_is_opened_may_be_reached(address, allow, may):
    assert Reach(allow=allow).allows(address) is may


async def test_requests_and_sandboxes_agree_about_this_machines_own_addresses():
    own = own_address()
    opened = ipaddress.ip_network(f"{own}/8", strict=False)
    assert not Reach(allow=(str(opened),)).allows(own)
    assert not AddressRules(opened=(opened,), own=frozenset({own})).allows(own)
    assert Reach(allow=(own,)).allows(own)
    assert AddressRules(opened=(ipaddress.ip_network(own),), own=frozenset({own})).allows(own)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "①②⑦.0.0.1", "127。0。0。1", "127.1", "0x7f.1", "[::ffff:127.0.0.1]"]
)
async def test_no_spelling_of_an_address_passes(host):
    async with Counting() as server, Outbound(Reach()) as client:
        with pytest.raises((OutOfReachError, aiohttp.InvalidUrlClientError)):
            await client.request("GET", URL(f"http://{host}:{server.port}/"))
        assert server.connections == 0


async def test_a_name_that_meant_the_internet_a_moment_ago_is_checked_when_it_is_connected_to(monkeypatch):
    """What a name meant when it was looked up first must not matter: the second answer is this machine."""
    real, answers = socket.getaddrinfo, iter(["8.8.8.8"])

    def rebound(host, port, *args, **given):
        if host != "rebound.example":
            return real(host, port, *args, **given)
        return real(next(answers, "127.0.0.1"), port, *args, **given)

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    async with Counting() as server, Outbound(Reach(), proxied=True) as client:
        url = URL(f"http://rebound.example:{server.port}/")
        assert await client.is_inside(url) is False
        with pytest.raises(OutOfReachError, match=r"rebound\.example is not an address"):
            await client.request("GET", url)
        assert server.connections == 0


async def test_a_server_of_the_settings_may_be_anywhere_but_no_other_port_of_its_host():
    async with Counting() as server, Counting() as other:
        reach = Reach(servers=frozenset({f"localhost:{server.port}"}))
        async with Outbound(reach) as client:
            answer = await client.request("GET", URL(f"http://localhost:{server.port}/"))
            assert await answer.text() == "ok"
            for refused in (f"http://localhost:{other.port}/", f"http://127.0.0.1:{server.port}/"):
                with pytest.raises(OutOfReachError):
                    await client.request("GET", URL(refused))
        assert other.connections == 0


async def test_through_a_proxy_a_name_that_leads_inside_is_refused_too(monkeypatch):
    async with Counting() as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        async with Outbound(Reach(), proxied=True) as client:
            for host in ("169.254.169.254", "169.254.169.254.", "2852039166"):
                with pytest.raises(OutOfReachError):
                    await client.request("GET", URL(f"http://{host}/latest"))
            assert proxy.connections == 0
            answer = await client.request("GET", URL("http://93.184.216.34/"))
            assert await answer.text() == "ok"
