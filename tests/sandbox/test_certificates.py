"""The CA bundle of a setting: checked before a run, inside every sandbox and build, never in a layer."""

from __future__ import annotations

import pytest

from proctor.errors import UsageError
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.certificates import BUNDLE_PATH, CaBundle, read_ca_bundle
from proctor.sandbox.container.command import HostParts, mounts

PEM = b"-----BEGIN CERTIFICATE-----\nhouse\n-----END CERTIFICATE-----\n"


@pytest.fixture
async def trusting(tmp_path, cache_dir, anyio_backend):
    made = Bubblewrap(tmp_path / "home", cache_dir=cache_dir, ca_bundle=CaBundle(PEM))
    yield made
    await made.close()


async def test_every_sandbox_has_the_bundle_and_the_variables_that_name_it(trusting):
    root = Root(host=True, workdir="/app", env={"PIP_CERT": "/of/the/image"})
    sandbox = trusting.sandbox(SandboxRequest(name="t", root=root, limits=Limits()))
    await sandbox.start()
    try:
        shown = await sandbox.exec(["/bin/sh", "-c", 'cat "$SSL_CERT_FILE"; echo "$PIP_CERT"'], user="nobody")
        assert shown.stdout == PEM + b"/of/the/image\n"
        assert sandbox.info().ledger["ca_bundle"] == CaBundle(PEM).digest
    finally:
        await sandbox.stop()


async def test_a_layer_of_a_build_does_not_hold_the_bundle(trusting, backend, tmp_path):
    sandbox = trusting.sandbox(SandboxRequest(name="b", root=Root(host=True, workdir="/app")))
    await sandbox.start()
    try:
        await sandbox.exec(["/bin/sh", "-c", "echo made > /etc/made"])
        await sandbox.take_layer(tmp_path / "layer")
    finally:
        await sandbox.stop()
    root = Root(host=True, layers=(tmp_path / "layer",), workdir="/app")
    sandbox = backend.sandbox(SandboxRequest(name="l", root=root))
    await sandbox.start()
    try:
        found = await sandbox.exec(["/bin/sh", "-c", f"ls -d /etc/made {BUNDLE_PATH}"])
        assert found.stdout == b"/etc/made\n"
    finally:
        await sandbox.stop()


async def test_without_the_setting_nothing_is_added(sandbox):
    shown = await sandbox.exec(["/bin/sh", "-c", f'echo "$SSL_CERT_FILE"; ls {BUNDLE_PATH}'])
    assert shown.stdout == b"\n"
    assert "ca_bundle" not in sandbox.info().ledger


def test_a_container_gets_a_copy_that_all_its_users_may_read(tmp_path):
    file = CaBundle(PEM).file_in(tmp_path / "cache")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (PEM, 0o644)
    assert CaBundle(PEM).file_in(tmp_path / "cache") == file
    place = HostParts(
        name="n", labels={}, program=tmp_path, folder=tmp_path, resolver=tmp_path, ca_bundle=file
    )
    assert (file, BUNDLE_PATH) in mounts(SandboxRequest(name="c", root=Root(image="i")), place)


def test_no_setting_is_no_bundle():
    assert read_ca_bundle("") is None


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), (b"hello", "holds no certificate in PEM form")]
)
def test_a_file_that_cannot_be_a_bundle_is_told_before_the_run(tmp_path, content, said):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=f"setting 'ca_bundle': .*ca.pem.*{said}"):
        read_ca_bundle(str(file))
