"""Tools that load files of the project, with the tool itself as the oracle: a project names a program everywhere that a
tool may read it, and words that are not judged to run one may not run it. A tool that is not installed is not asked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mudroom.core.command.program.classification import classify_words
from mudroom.core.command.program.toolchain import TOOLS

PLACES = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
JS = "require('fs').writeFileSync(process.env.RAN, '')\n"
PY = "import os\nopen(os.environ['RAN'], 'w')\n"
SCRIPTS = (
    "bin completion docs doctor explain find foo get help la licenses list ll ls ping prefix root search show view"
)
FILES = {
    "evil": '#!/bin/sh\n: > "$RAN"\n',
    "evil.py": PY,
    "evil.js": JS,
    ".yarnrc": 'yarn-path "./evil.js"\n',
    ".yarnrc.yml": "yarnPath: ./evil.js\n",
    ".pnpmfile.cjs": JS,
    ".npmrc": "browser=./evil\nviewer=browser\npager=./evil\neditor=./evil\ngit=./evil\nscript-shell=./evil\n",
    "package.json": json.dumps({"name": "x", "version": "1.0.0", "scripts": dict.fromkeys(SCRIPTS.split(), "./evil")}),
    "bunfig.toml": 'preload = ["./evil.js"]\n',
    "mypy.ini": "[mypy]\nplugins = ./evil.py\n",
    ".pylintrc": "[MAIN]\ninit-hook=\"import os; open(os.environ['RAN'], 'w')\"\n",
    ".flake8": "[flake8:local-plugins]\nextension =\n    X1 = evil:plugin\npaths = .\n",
    ".coveragerc": "[run]\nplugins = evil\n",
    ".prettierrc": '{"plugins": ["./evil.js"]}\n',
    ".stylelintrc.json": '{"plugins": ["./evil.js"], "rules": {}}\n',
    "pyproject.toml": '[project]\nname = "x"\nversion = "1"\n[tool.ruff]\n[tool.black]\n[tool.isort]\n',
    ".venv/pyvenv.cfg": "home = /usr/bin\nversion = 3.11.2\n",
    ".venv/bin/python": '#!/bin/sh\n: > "$RAN"\n',
    ".cargo/config.toml": '[build]\nrustc = "./evil"\nrustdoc = "./evil"\n',
    "Cargo.toml": '[package]\nname = "x"\nversion = "1.0.0"\n',
    "src/main.rs": "fn main() {}\n",
    "x.py": "a = 1\n",
    "a.js": "1\n",
    "a.css": "a {}\n",
    "Makefile": "X := $(shell ./evil)\nall:\n",
    "CMakeLists.txt": "execute_process(COMMAND ./evil)\n",
    "build.ninja": "rule x\n  command = ./evil\nbuild all: x\n",
}
OPERANDS = ("--version", "--help", "help", "x.py", "a.js", "a.css", ".")
ASKED = """
    npm pnpm yarn bun pip uv poetry pdm hatch pipenv cargo rustc mypy pylint flake8 black isort ruff coverage twine
    prettier stylelint tsc pyright make cmake ninja
"""
"""Tools that are asked if they are installed."""

QUICK = ("make", "mypy", "cargo", "ruff")


def lines(tool: str) -> list[list[str]]:
    """Return the tool's words that are not judged to run a program, to use the network or to lose something."""
    found = [[tool], *([tool, word] for word in OPERANDS)]
    for verb, rule in (TOOLS[tool.encode()].subcommands or {}).items():
        found += [[tool, verb.decode()], [tool, verb.decode(), "x.py"]]
        found += [[tool, verb.decode(), second.decode()] for second in rule.subcommands or {}]
    mild = {"read_only", "mutating"}
    return [line for line in found if mild.issuperset(classify_words([word.encode() for word in line]).classes)]


def project(place: Path) -> Path:
    for name, text in FILES.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if text.startswith("#!") else 0o644)
    return place


def wrong(tool: str, directory: Path) -> list[list[str]]:
    """Return the words that run a program of the project and are not judged to."""
    ran, home, found = directory / "ran", directory / "home", []
    home.mkdir()
    environment = {"PATH": PLACES, "HOME": str(home), "RAN": str(ran), "CI": "1", "NO_UPDATE_NOTIFIER": "1"}
    for number, line in enumerate(lines(tool)):
        subprocess.run(line, cwd=project(directory / str(number)), env=environment, check=False, timeout=60,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        found += [line] if ran.exists() else []
        ran.unlink(missing_ok=True)
    return found


@pytest.mark.parametrize("tool", [tool for tool in QUICK if shutil.which(tool, path=PLACES)])
def test_a_quick_tool_runs_nothing_of_the_project_that_is_not_said(tool: str, tmp_path: Path) -> None:
    assert wrong(tool, tmp_path) == []


@pytest.mark.deep
@pytest.mark.parametrize("tool", [tool for tool in ASKED.split() if shutil.which(tool, path=PLACES)])
def test_a_tool_runs_nothing_of_the_project_that_is_not_said(tool: str, tmp_path: Path) -> None:
    assert wrong(tool, tmp_path) == []
