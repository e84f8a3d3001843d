"""What `network_allow` and `allowed_hosts` may say."""

from __future__ import annotations

import ipaddress

import pytest

from proctor.model.network import NOT_THE_INTERNET, parse_allowed, wrong_allowed, wrong_host


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.1.2.3", "10.1.2.3/32"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("fd00::1", "fd00::1/128"),
        ("[fd00::1]", "fd00::1/128"),
        ("Mirror.Example.", "mirror.example"),
        ("mirror", "mirror"),
    ],
)
def test_addresses_ranges_and_names_are_read(text, found):
    assert str(parse_allowed(text)) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10.1.2.3/8", "did you mean 10.0.0.0/8?"),
        ("10.1.2", "not an address"),
        ("10.1.2.300", "not an address"),
        ("http://mirror.example/", "not an address"),
        ("mirror.example:3128", "not an address"),
        ("*.example", "not an address"),
        ("", "not an address"),
        ("127.0.0.1", "loopback"),
        ("0.0.0.0/0", "loopback"),
        ("::1", "loopback"),
        ("224.0.0.1", "multicast"),
        ("10.0.2.2", "which every sandbox uses"),
    ],
)
def test_what_opens_nothing_is_told(text, said):
    assert said in wrong_allowed(text)


def test_entries_without_a_fault_say_nothing():
    assert wrong_allowed("10.0.0.0/8") == wrong_allowed("mirror.example") == ""


@pytest.mark.parametrize(
    "text", ["pypi.org", "*.pythonhosted.org", "192.0.2.1", "192.0.2.0/24", "::1", "fd00::/8"]
)
def test_hosts_of_an_allow_list_are_names_wildcards_addresses_and_ranges(text):
    assert wrong_host(text) == ""


@pytest.mark.parametrize(
    "text", ["https://pypi.org", "pypi.org:443", "pypi.org/simple", "a.*.org", "", "10.1.2.3/8"]
)
def test_other_hosts_are_told(text):
    assert "is not a host name" in wrong_host(text)


def test_every_address_that_python_calls_private_is_not_the_internet():
    for text in ("10.0.0.1", "192.168.3.4", "172.16.9.9", "169.254.1.1", "127.1.1.1", "fc00::1", "fe80::1"):
        assert any(ipaddress.ip_address(text) in each for each in NOT_THE_INTERNET)
