"""Real packages through the gate, from the registries that this machine reaches."""

from __future__ import annotations

import os
import shutil
import socket

import pytest

from clients import Gated
from conftest import Place
from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Settings
from mudroom.session import Session
from mudroom.session.confinement.host_approver import HostAnswers

PYTHON = "/usr/bin/python3"


def reaches(host: str) -> bool:
    try:
        socket.create_connection((host, 443), 5).close()
    except OSError:
        return False
    return True


def installs(place: Place, script: str) -> None:
    """Wherever the names of registries lead on this machine."""
    extra = tuple(os.fsencode(name) for name in os.environ if name.lower().startswith(("npm_config", "pip_")))
    rules = [HostRule("allow", "*", (80, 443), private=True, source="the test")]
    with Session.open(
        os.fsencode(place.project), state=os.fsencode(place.state), home=os.fsencode(place.home),
        environ={**os.environb, b"LC_ALL": b"C"}, settings=Settings(network="gate", environment=extra),
        hosts=HostAnswers(lambda: rules),
    ) as session:  # fmt: skip
        result = session.run([b"sh", b"-c", script.encode()], timeout=80)
        gate = Gated(session)
        assert result.exit_code == 0, (result.stderr, result.denials)
        assert gate.flows()
        assert {flow.verdict for flow in gate.flows()} == {"allow"}


@pytest.mark.slow
@pytest.mark.network
def test_pip_installs_by_name_from_the_real_registry(place: Place) -> None:
    if not reaches("pypi.org"):
        pytest.skip("pypi.org cannot be reached from here")
    installs(
        place, f"{PYTHON} -m pip -q install --no-cache-dir --target t six && PYTHONPATH=t {PYTHON} -c 'import six'"
    )


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_installs_by_name_from_the_real_registry(place: Place) -> None:
    if not reaches("registry.npmjs.org"):
        pytest.skip("registry.npmjs.org cannot be reached from here")
    installs(
        place, "npm install --no-audit --no-fund --no-update-notifier is-odd@3.0.1 && node -e 'require(\"is-odd\")'"
    )
