"""What root inside a sandbox may do, whatever kind of sandbox it is: one list for all of them."""

from __future__ import annotations

CAPABILITIES = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7,
    "SETPCAP": 8, "NET_BIND_SERVICE": 10, "SYS_CHROOT": 18, "SETFCAP": 31,
}  # fmt: skip
"""Name → number: what package managers need. No device nodes, no raw sockets, no network to configure."""
MASK = sum(1 << number for number in CAPABILITIES.values())
