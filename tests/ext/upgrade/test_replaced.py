"""The files of mudroom are replaced or removed while a command runs: at the import of a module, in a copy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "src"
TOLD = "mudroom: its files were replaced while this command ran: an upgrade? (mudroom status says what is kept)\n"
CHANGES = ("sh", "-c", "echo new > a; rm b; echo c > c")
BEFORE, AFTER = {"a": "old\n", "b": "b\n"}, {"a": "new\n", "c": "c\n"}

# As the console script; at the import of the module MODULE the package is another one, or gone.
PROGRAM = """
import os, sys
def hook(event, words):
    if event == "import" and words[0] == os.environ.get("MODULE"):
        os.rename(sys.path[0] + "/mudroom", sys.path[0] + "/was")
        if os.path.exists(sys.path[0] + "/next"):
            os.rename(sys.path[0] + "/next", sys.path[0] + "/mudroom")
sys.path.insert(0, os.environ["SITE"])
sys.addaudithook(hook)
from mudroom.cli import main
main()
"""


class Installed(NamedTuple):
    root: Path

    def run(self, *words: str, module: str = "", by: str = "") -> tuple[int, str]:
        """Return exit code and stderr of a verb. ``module``: where the package is replaced ``by`` another, if named."""
        site = self.root / f"site-{module}"
        site.mkdir()
        for name in ("mudroom", by):
            if name:
                subprocess.run(["cp", "-a", SOURCE / "mudroom", site / name], check=True)
        if by:
            with open(site / by / "__init__.py", "a") as stream:
                stream.write("# another version\n")
        environ = {"PATH": os.defpath, "HOME": str(self.root), "MUDROOM_KEEPER": "0", "SITE": str(site)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words],
            cwd=self.root / "project", env=environ | ({"MODULE": module} if module else {}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        subprocess.run(["rm", "-r", site], check=True)
        return done.returncode, done.stderr

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in (self.root / "project").iterdir() if path.is_file()}


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    (tmp_path / "project").mkdir()
    for name, text in BEFORE.items():
        (tmp_path / "project" / name).write_text(text)
    return Installed(tmp_path)


@pytest.mark.parametrize(
    ("module", "by"),
    [
        ("mudroom.cli.main", "next"),
        ("mudroom.vault.forks.collection", ""),
        ("mudroom.vault.apply.landing", "next"),
        ("mudroom.vault.apply.remainder", ""),
    ],
)
def test_a_command_whose_files_are_replaced_says_one_line_and_is_whole(
    installed: Installed, module: str, by: str
) -> None:
    code, told = installed.run("run", "--yes", "--", *CHANGES, module=module, by=by)
    assert (code, told.splitlines(keepends=True)[-1]) == (125, TOLD)
    assert "Traceback" not in told
    assert installed.files() in (BEFORE, AFTER)
    code, _told = installed.run("recover")  # by the new version
    assert code == 0
    assert installed.files() in (BEFORE, AFTER)


def test_a_start_amid_an_upgrade_is_one_line(installed: Installed) -> None:
    code, told = installed.run("status", module="mudroom.core.registry")
    assert code == 125
    assert told == (
        "mudroom: this installation is not complete: No module named 'mudroom.core'"
        " (try again; or pip install --force-reinstall mudroom)\n"
    )


def test_a_command_whose_files_stay_runs(installed: Installed) -> None:
    code, told = installed.run("run", "--yes", "--", *CHANGES)
    assert (code, installed.files()) == (0, AFTER), told
