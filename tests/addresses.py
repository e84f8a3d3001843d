"""Addresses at which tests serve."""

from __future__ import annotations

import socket

import pytest


def own_address() -> str:
    """An address of this machine that is not its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("no network interface besides the loopback")
        address: str = probe.getsockname()[0]
        return address
