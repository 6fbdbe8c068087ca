"""A question about a host that is answered on the page while ``npm install`` waits for it, and what npm did then."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from browser import Site, environment

import forked
from clients import Site as Registry
from conftest import Place

if TYPE_CHECKING:
    from playwright.sync_api import Page

REGISTRY = "127.0.0.2"
"""A server of our own, which a proxy is asked for: programs ask none for 127.0.0.1."""
pytestmark = [
    pytest.mark.deep,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]


def test_npm_waits_for_the_page(place: Place, site: Site, page: Page) -> None:
    registry = Registry(place.root / "registry")
    with registry.served(REGISTRY) as port:
        registry.package(REGISTRY, port)
        host = f"{REGISTRY}:{port}"
        place.write("package.json", json.dumps({"name": "shop", "version": "1.0.0"}))
        place.write(".mudroom/policy.yaml", f'network:\n  private: ["{host}"]\n  ask: ["{host}"]\n')
        words = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--registry",
            f"http://{host}/npm",
        ]
        with forked.popen(
            ["run", "--yes", "--json", "--", *words, "tiny"],
            cwd=place.project,
            env=environment(place),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            asked = page.locator(".ask").filter(has_text=host)
            asked.get_by_text("A command of yours wants to reach").wait_for()
            assert not (place.project / "node_modules").exists()
            assert f"allow {host}" in asked.inner_text()  # what "always" would write
            asked.get_by_role("button", name="Allow once", exact=True).click()
            out, err = process.communicate(timeout=80)
        done = json.loads(out)
        assert (done["exit_code"], done["denials"]) == (0, []), err
        assert (place.project / "node_modules/tiny/index.js").exists()
        flows = site.get(f"/projects/{site.project}/flows")["flows"]
        assert {(flow["host"], flow["port"], flow["verdict"]) for flow in flows} == {(REGISTRY, port, "allow")}
