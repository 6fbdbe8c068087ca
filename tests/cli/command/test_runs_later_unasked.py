"""What runs by itself later is not applied without a question: ``auto_apply: always``, by place and by content."""

from __future__ import annotations

import json
import subprocess

import pytest

from conftest import Place
from test_vault_verb import Cli


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("a.txt", "old\n")
    place.write("hooks/readme", "x\n")
    place.write("package.json", '{"scripts": {"test": "node tools/run"}}')
    place.write(".mudroom/policy.yaml", "user_commands:\n  auto_apply: always\n")
    subprocess.run(["git", "init", "-q"], cwd=place.project, check=True)
    subprocess.run(["git", "config", "core.hooksPath", "."], cwd=place.project, check=True)
    return Cli(place)


def test_each_is_kept_for_review_with_its_reason(cli: Cli) -> None:
    scripts = {
        "pre-commit": "echo x > pre-commit",
        "pkg/__pycache__/a.pyc": "mkdir -p pkg/__pycache__; echo x > pkg/__pycache__/a.pyc",
        ".venv/bin/python": "mkdir -p .venv/bin; echo x > .venv/bin/python",
        ".cargo/config.toml": "mkdir .cargo; echo x > .cargo/config.toml",
        "tools/run.js": "mkdir tools; echo x > tools/run.js",
        "it": "printf '#!/bin/sh\\n' > it; chmod +x it",
    }
    script = "; ".join(scripts.values()) + "; echo y > plain.py; ln -s it link"
    done = cli("run", "--json", "--", "sh", "-c", script)
    result = json.loads(done.stdout)
    later = {row["path"]: row["runs_later"] for row in result["changes"]["files"] if "runs_later" in row}
    assert scripts.keys() == later.keys()
    assert later["tools/run.js"] == "at the next install, or when a script of it is called: package.json names it"
    assert later["pre-commit"] == "at the next git command"
    assert not (cli.place.project / "plain.py").exists(), "nothing is applied without a question"
