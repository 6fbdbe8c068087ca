"""Real tools and installers that write into the home: staged, applied, used, and taken back to the byte.

The rows are in ``home_installers.toml``: a script that runs with a staged home, a command that uses on the host what
has landed, and what that prints. The user edits a startup file before the apply, and keeps that.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from box import if_namespaces
from conftest import Place, listing, tick

pytestmark = if_namespaces


class Tool(NamedTuple):
    name: str
    script: str
    use: str
    prints: str
    needs: Sequence[str] = ()
    """Programs without which the row is skipped."""
    is_quick: bool = False


ROWS = tomllib.loads(Path(__file__).with_name("home_installers.toml").read_text())["tool"]
TOOLS = [
    Tool(row["name"], row["script"], row["use"], row["prints"], row.get("needs", ()), row.get("quick", False))
    for row in ROWS
]
RC = "export A=1\n\n\n\n\nexport B=2\n"


def wheel(directory: Path) -> Path:
    """A wheel with one script, made by hand: PEP 427."""
    files = {
        "hello_wheel.py": "def main():\n    print('from a wheel')\n",
        "hello_wheel-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello-wheel\nVersion: 1\n",
        "hello_wheel-1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "hello_wheel-1.dist-info/entry_points.txt": "[console_scripts]\nhello-wheel = hello_wheel:main\n",
    }
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={digest},{len(text)}")
    files["hello_wheel-1.dist-info/RECORD"] = "\n".join([*rows, "hello_wheel-1.dist-info/RECORD,,", ""])
    path = directory / "hello_wheel-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def program(name: str) -> str:
    """A program of a package, if it lies where ``MUDROOM_NAME`` says, or is installed."""
    return os.environ.get(f"MUDROOM_{name.upper()}") or shutil.which(name) or f"no-{name}"


def furnish(place: Place) -> None:
    for name in (".bashrc", ".profile"):
        (place.home / name).write_text(RC)
    (place.home / ".config").mkdir()
    (place.home / ".local/bin").mkdir(parents=True)
    place.write("package/package.json", '{"name": "hello-package", "version": "1.0.0", "bin": "hello.js"}')
    place.write("package/hello.js", "#!/usr/bin/env node\nconsole.log('from a package')\n", mode=0o755)
    wheel(place.project)


def used(place: Place, words: str) -> str:
    env = {"HOME": str(place.home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TERM": "dumb"}
    env |= {"PYTHONPATH": str(next(iter(place.home.glob(".local/lib/python*/site-packages")), ""))}
    ran = subprocess.run(
        ["sh", "-c", words], env=env, cwd=place.home, capture_output=True, text=True, timeout=60, check=False
    )
    return ran.stdout.strip("\r\n ") + ran.stderr * (not ran.stdout)


def require(tool: Tool, words: dict[str, str]) -> None:
    for program in tool.needs:
        ran = subprocess.run(["sh", "-c", f"{program.format(**words)} --version"], capture_output=True, check=False)
        if ran.returncode:
            pytest.skip(f"{program} is not on this machine")


def play(place: Place, tool: Tool) -> None:
    words = {name: program(name) for name in ("uv", "bun")}
    words |= {"python": sys.executable, "home": str(place.home), "wheel": "hello_wheel-1-py3-none-any.whl"}
    require(tool, words)
    furnish(place)
    before = listing(place.home)
    script = tool.script
    for name, value in words.items():
        script = script.replace(f"{{{name}}}", value)
    session = place.session()
    result = session.run([b"sh", b"-ec", script.encode()], roots=[os.fsencode(place.home)])
    assert result.exit_code == 0, (result.stdout, result.stderr, result.notes)
    assert listing(place.home) == before
    tick()
    (place.home / ".bashrc").write_text(RC.replace("A=1", "A=10"))
    landed = session.changes.apply(result.fork)
    assert not landed.conflicts
    assert not any(root.landed.conflicts for root in landed.roots)
    after = listing(place.home)
    assert after != before
    shown = used(place, tool.use.format(**words))
    assert shown == tool.prints.format(**words)
    tick()
    session.changes.undo()
    if "fish" not in tool.needs:  # it writes its own files while it is used
        assert (place.home / ".bashrc").read_text() == RC.replace("A=1", "A=10")
        (place.home / ".bashrc").write_text(RC)
        assert {name: row for name, row in listing(place.home).items() if not is_by_use(name)} == before


def is_by_use(name: str) -> bool:
    """Whether a file was made by the use of a tool on the host: compiled modules, caches."""
    return "__pycache__" in name or name.startswith((".npm", ".cache", ".viminfo"))


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool.is_quick], ids=lambda tool: tool.name)
def test_an_installation_is_taken_back(place: Place, tool: Tool) -> None:
    play(place, tool)


@pytest.mark.deep
@pytest.mark.parametrize("tool", [tool for tool in TOOLS if not tool.is_quick], ids=lambda tool: tool.name)
def test_every_installation_is_taken_back(place: Place, tool: Tool) -> None:
    play(place, tool)
