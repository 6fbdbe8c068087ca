"""A file that was moved and changed in one go, as ``mudroom diff`` tells a person, git, and a program."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import Place
from test_vault_verb import Cli

TEXT = "".join(f"line {number}\n" for number in range(40))


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("src/old.py", TEXT)
    place.write("other", "one\n")
    found = Cli(place)
    script = "mkdir lib; mv src/old.py lib/new.py; echo more >> lib/new.py; echo two > other"
    assert found("exec", "--fork", "f", "--", "sh", "-ec", script).returncode == 0
    return found


def test_it_is_printed_as_git_does(cli: Cli) -> None:
    lines = cli("diff", "f").stdout.splitlines()
    at = lines.index("diff --git a/src/old.py b/lib/new.py")
    assert lines[at + 1 : at + 4] == ["similarity index 98%", "rename from src/old.py", "rename to lib/new.py"]
    assert "deleted file mode 100644" not in lines
    assert "new file mode 100644" in cli("diff", "f", "lib").stdout, "the other end is not in what is shown"


def test_a_program_is_told_the_other_end_and_nothing_else_is_another_thing(cli: Cli) -> None:
    found = cli.json("diff", "f")
    files: dict[str, dict[str, Any]] = {one["path"]: one for one in found["changes"]["files"]}
    assert {path: one["change"] for path, one in files.items()} == {
        "lib/new.py": "added",
        "other": "modified",
        "src/old.py": "deleted",
    }
    assert (files["lib/new.py"]["moved_from"], files["lib/new.py"]["similarity"]) == ("src/old.py", 98)
    assert (files["src/old.py"]["moved_to"], files["src/old.py"]["similarity"]) == ("lib/new.py", 98)
    assert not {"moved_from", "moved_to", "similarity"} & files["other"].keys()
    assert found["changes"]["summary"]["renamed"] == 0


def test_each_end_is_applied_by_itself(cli: Cli) -> None:
    cli("apply", "f", "--yes", "lib/new.py")
    project = cli.place.project
    assert ((project / "lib/new.py").read_text(), (project / "src/old.py").read_text()) == (TEXT + "more\n", TEXT)
    assert [one["path"] for one in cli.json("diff", "f")["changes"]["files"]] == ["other", "src/old.py"]
