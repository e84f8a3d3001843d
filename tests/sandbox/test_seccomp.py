"""The filter, run on an interpreter of its own instructions."""

from __future__ import annotations

import errno
import struct

import pytest

from proctor.sandbox.seccomp import build_filter, supported

X86, ARM = 0xC000003E, 0xC00000B7


def run(program: bytes, *, arch: int, number: int, arguments: tuple[int, ...] = ()) -> int | None:
    """The error that a call gets, or None when it is allowed."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, arch, 0, *padded)
    code = [struct.unpack_from("=HBBI", program, start) for start in range(0, len(program), 8)]
    value = at = 0
    while True:
        operation, true, false, constant = code[at]
        at += 1
        if operation == 0x20:
            (value,) = struct.unpack_from("=I", data, constant)
        elif operation == 0x06:
            return None if constant == 0x7FFF0000 else constant & 0xFFFF
        else:
            matched = {0x15: value == constant, 0x45: value & constant, 0x35: value >= constant}[operation]
            at += true if matched else false


@pytest.mark.parametrize(
    ("number", "arguments", "expected"),
    [
        (0, (), None),
        (59, (), None),
        (41, (1,), None),
        (41, (2,), None),
        (41, (10,), None),
        (41, (16,), None),
        (41, (40,), errno.EAFNOSUPPORT),
        (41, (38,), errno.EAFNOSUPPORT),
        (41, (40 | 1 << 32,), errno.EAFNOSUPPORT),
        (16, (0, 0x5412), errno.EPERM),
        (16, (0, 0x5412 | 0xFFFFFFFF << 32), errno.EPERM),
        (16, (0, 0x541C), errno.EPERM),
        (16, (0, 0x5413), None),
        (425, (), errno.ENOSYS),
        (435, (), errno.ENOSYS),
        (250, (), errno.EPERM),
        (165, (), errno.EPERM),
        (272, (0x10000000,), errno.EPERM),
        (272, (0x00000200,), None),
        (56, (0x10000000 | 17,), errno.EPERM),
        (56, (17,), None),
        (101, (), None),
        (308, (3, 0x10000000), None),
        (308, (3, 0), errno.EPERM),
        (308, (3, 0x00020000), errno.EPERM),
        (0x40000027, (), errno.ENOSYS),
    ],
)
def test_calls_of_x86_are_judged(number, arguments, expected):
    assert run(build_filter("x86_64"), arch=X86, number=number, arguments=arguments) == expected


@pytest.mark.parametrize(
    ("number", "arguments", "expected"),
    [
        (221, (), None),
        (198, (40,), errno.EAFNOSUPPORT),
        (198, (2,), None),
        (29, (0, 0x5412), errno.EPERM),
        (219, (), errno.EPERM),
        (40, (), errno.EPERM),
        (97, (0x10000000,), errno.EPERM),
        (425, (), errno.ENOSYS),
    ],
)
def test_calls_of_arm_are_judged(number, arguments, expected):
    assert run(build_filter("aarch64"), arch=ARM, number=number, arguments=arguments) == expected


def test_calls_of_another_architecture_do_not_exist():
    assert run(build_filter("x86_64"), arch=0x40000003, number=1) == errno.ENOSYS


def test_processors_are_known_by_name():
    assert supported("x86_64")
    assert not supported("vax")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_other_call_is_allowed_and_every_jump_fits_into_its_byte(machine):
    program = build_filter(machine)
    arch = X86 if machine == "x86_64" else ARM
    denied = {number for number in range(600) if run(program, arch=arch, number=number) is not None}
    assert 30 < len(denied) < 50
    assert len(program) // 8 < 255  # a jump is one byte
