"""Which addresses a sandbox's network may reach, as routes and as a yes or no."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from proctor.errors import SandboxError
from proctor.model.network import NOT_THE_INTERNET
from proctor.sandbox.network_rules import AddressRules, NetworkRules, own_addresses, resolve_rules


def rules(*opened, own=()):
    return AddressRules(opened=tuple(ipaddress.ip_network(each) for each in opened), own=frozenset(own))


@pytest.mark.parametrize("address", ["1.1.1.1", "11.22.33.44", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_the_internet_may_be_reached(address):
    assert rules().allows(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.31.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254",
        "168.63.129.16", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "::", "fd00:ec2::254", "fe80::1",
        "fe80::1%eth0", "ff02::1", "::ffff:10.1.2.3", "64:ff9b::a01:203", "2002:a01:203::1", "fec0::1",
    ],
)  # fmt: skip
def test_private_addresses_may_not_be_reached_however_they_are_written(address):
    assert not rules().allows(address)


def test_an_opened_range_opens_what_is_in_it():
    opened = rules("10.1.0.0/16", "fd00::/64")
    assert opened.allows("10.1.2.3")
    assert opened.allows("fd00::7")
    assert not opened.allows("10.2.0.1")
    assert not opened.allows("fd00:1::7")


def test_this_machine_is_opened_by_its_very_address_alone():
    own = ("10.1.2.3", "5.6.7.8")
    assert not rules(own=own).allows("5.6.7.8")
    assert not rules("10.1.0.0/16", "5.0.0.0/8", own=own).allows("10.1.2.3")
    assert not rules("10.1.0.0/16", "5.0.0.0/8", own=own).allows("5.6.7.8")
    assert rules("10.1.2.3/32", own=own).allows("10.1.2.3")


def test_routes_refuse_every_range_and_this_machine_before_the_way_out():
    lines = list(rules(own=("5.6.7.8", "fd00::2")).routes())
    refused = [line for line in lines if "unreachable" in line]
    ranges = [each for each in NOT_THE_INTERNET if each.version == 4]
    assert refused == [f"route replace unreachable {each}" for each in (*ranges, "5.6.7.8/32")]
    assert lines[-1] == "route replace default via 10.0.2.2 dev tap0"


def test_routes_open_what_is_opened():
    lines = list(rules("10.1.2.3/32", "172.16.0.0/12", "5.6.7.8/32", own=("5.6.7.8", "10.9.9.9")).routes())
    assert "route replace unreachable 10.0.0.0/8" in lines
    assert "route replace unreachable 172.16.0.0/12" not in lines
    assert "route replace unreachable 10.9.9.9/32" in lines
    assert "route replace unreachable 5.6.7.8/32" not in lines
    for each in ("10.1.2.3/32", "172.16.0.0/12", "5.6.7.8/32"):
        assert f"route replace {each} via 10.0.2.2 dev tap0" in lines


def test_services_of_a_compose_file_may_ask_this_machine_for_names_and_nothing_else():
    lines = list(rules(own=("10.89.0.1",)).services())
    assert "route replace unreachable 10.0.0.0/8" in lines
    assert lines[-3:] == [
        "rule add pref 100 ipproto udp dport 53 lookup main",
        "rule add pref 100 ipproto tcp dport 53 lookup main",
        "rule add pref 101 to 10.89.0.1/32 unreachable",
    ]


def test_the_addresses_of_this_machine_are_found():
    found = set(own_addresses())
    assert "127.0.0.1" in found
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("no network interface besides the loopback")
        assert probe.getsockname()[0] in found


def test_a_kernel_without_ipv6_has_none_of_its_addresses(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net/fib_trie").write_text("     |-- 192.0.2.2\n        /32 host LOCAL\n")
    assert list(own_addresses(tmp_path)) == ["192.0.2.2"]


@pytest.mark.anyio
async def test_names_are_resolved_and_entries_kept():
    found = await resolve_rules(NetworkRules(allow=("10.0.0.0/8", "192.0.2.7")))
    assert [str(each) for each in found.opened] == ["10.0.0.0/8", "192.0.2.7/32"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("localhost", "resolves to .*loopback"),
        ("no-such-name.invalid", "has no address"),
        ("http://x", "is not an address"),
    ],
)
async def test_an_entry_that_opens_nothing_is_an_error(entry, said):
    with pytest.raises(SandboxError, match=f"network_allow: .*{said}"):
        await resolve_rules(NetworkRules(allow=(entry,)))
