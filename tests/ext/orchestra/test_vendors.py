"""mudroom behind each framework, with its own package, agent and tests: a virtual environment for each."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest

from house import ROOT

pytestmark = [pytest.mark.deep, pytest.mark.network, pytest.mark.limit(1800)]

HERE = Path(__file__).parent
VENDORS = {
    "ag2": ("ag2==1.2.1",),
    "autogen": ("autogen-core==0.7.5", "autogen-ext==0.7.5"),
    "claude_agent_sdk": ("claude-agent-sdk==0.2.189",),
    "daytona": ("daytona==0.226.1",),
    "deepagents": ("deepagents==0.7.32", "langchain-tests==1.1.9"),
    "e2b": ("e2b==2.63.0", "e2b-code-interpreter==2.11.5"),
    "inspect_ai": ("inspect-ai==0.3.285",),
    "mini_swe_agent": ("mini-swe-agent==2.4.6",),
    "openai_agents": ("openai-agents==0.24.0",),
    "smolagents": ("smolagents==1.26.0", "numpy"),
    "swebench": ("swebench==5.0.2", "mini-swe-agent==2.4.6"),
}
"""The packages of each module's check: the newest of November 2026."""


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_framework_works_on_a_fork(tmp_path: Path, vendor: str) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin/python"
    packages = [*VENDORS[vendor], "pytest==9.2.0", "pytest-asyncio==1.5.0"]
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", *packages, str(ROOT)]
    subprocess.run(install, check=True, stdin=subprocess.DEVNULL)
    paths = [ROOT / "src", HERE / "vendors", HERE.parent / "agents/real"]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path / "mini"),
    }
    options = ["-q", "-c", "/dev/null", f"--rootdir={HERE / 'vendors'}", f"--confcutdir={HERE / 'vendors'}"]
    plugins = ["-p", "vendor_project", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    done = subprocess.run(
        [python, "-m", "pytest", *options, *plugins, HERE / f"vendors/{vendor}_check.py"],
        capture_output=True,
        text=True,
        env=variables,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-9000:] + done.stderr
