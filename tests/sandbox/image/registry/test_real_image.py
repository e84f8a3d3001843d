"""A whole Debian system from a registry, with bubblewrap alone."""

from __future__ import annotations

import pytest
from tests.sandbox.image.archives import layer
from tests.sandbox.image.registry.servers import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap", "docker-registry", "mmdebstrap")]


async def test_a_dockerfile_is_built_on_an_image_of_a_registry(
    real_images, roots, pusher, repository, debian, make_task, look
):
    settings = {"Env": ["PATH=/usr/bin:/bin"], "WorkingDir": "/srv"}
    base = pusher.image(repository, "base", [debian], config=settings)
    pusher.image(repository, "tool", [debian, layer({"opt/": None, "opt/tool": b"#!/bin/sh\necho tool\n"})])
    with Proxy(pusher.host) as proxy:
        name = f"{proxy.host}/{repository}"
        root = await real_images.root(make_task(f"FROM {name}:base\nRUN echo $(id -u) > made\n"))
        assert (root.host, root.workdir) == (False, "/srv")
        assert (root.image_name, root.image_digest) == (f"{name}:base", base["digest"])
        script = "cat made; . /etc/os-release; echo $VERSION_CODENAME; stat -c %a:%U /usr /tmp; dpkg -s dash"
        found = (await look(root, script)).splitlines()
        assert found[:4] == ["0", "bookworm", "755:root", "1777:root"]
        assert "Status: install ok installed" in found
        fetched = set(proxy.blobs())
        prebuilt = await real_images.root(make_task(None, image=f"{name}:tool", name="second"))
        assert await look(prebuilt, "sh /opt/tool") == "tool"
        assert len(set(proxy.blobs()) - fetched) == 2  # its own layer and its configuration
    assert [each.source for each in roots.references.all()] == ["registry", "registry"]
