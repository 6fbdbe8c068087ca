"""Modules for frameworks that are not installed here: each says what it needs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

from mudroom.api import MudroomError
from mudroom.ext.orchestra.vendor import VendorMissing

MODULES = {
    "ag2": ("ag2", "ag2"),
    "autogen": ("autogen-core", "autogen_core"),
    "claude_agent_sdk": ("claude-agent-sdk", "claude_agent_sdk"),
    "daytona": ("daytona", "daytona"),
    "deepagents": ("deepagents", "deepagents"),
    "e2b": ("e2b", "e2b"),
    "inspect_ai": ("inspect-ai", "inspect_ai"),
    "mini_swe_agent": ("mini-swe-agent", "minisweagent"),
    "openai_agents": ("openai-agents", "agents"),
    "smolagents": ("smolagents", "smolagents"),
    "swebench": ("swebench", "swebench"),
}


def imported(monkeypatch: pytest.MonkeyPatch, module: str, package: ModuleType | None) -> VendorMissing:
    name = f"mudroom.ext.orchestra.{module}"
    monkeypatch.setitem(sys.modules, MODULES[module][1], package)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(VendorMissing) as raised:
        importlib.import_module(name)
    assert isinstance(raised.value, ImportError) and isinstance(raised.value, MudroomError)
    assert name not in sys.modules
    return raised.value


@pytest.mark.parametrize("module", MODULES)
def test_a_package_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    package = MODULES[module][0]
    error = imported(monkeypatch, module, None)
    assert error.message.startswith(f"this module of mudroom needs the package {package}, which is not installed (")
    assert error.hint == f"pip install {package}"


@pytest.mark.parametrize("module", ["daytona", "e2b"])
def test_a_package_of_another_version_is_named(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    error = imported(monkeypatch, module, ModuleType(MODULES[module][1]))
    assert error.message.startswith(f"this module of mudroom does not fit the installed {module}: cannot import name")
    assert error.hint == f"pip install --upgrade {module}"


def test_the_shared_part_loads_no_framework() -> None:
    program = "import sys; import mudroom.ext.orchestra.workspace; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {package for _name, package in MODULES.values()}
