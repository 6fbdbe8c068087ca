"""``mudroom diff --view``: what is printed, and what a program reads."""

from __future__ import annotations

import json

import pytest

from box import if_namespaces
from conftest import Place
from mudroom.core.settings import Settings
from mudroom.ext.views import reader
from mudroom.ext.views.kinds.kind import KINDS
from mudroom.ext.views.reader import view_of
from test_vault_verb import Cli

EDIT = """
sed -i s/1.9.0/1.10.0/ package-lock.json
sed -i 's/"a": 1/"a": 2/' a.json
echo 'x: [' >>b.yaml
echo two >>README.md
"""


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("package-lock.json", json.dumps({"packages": {"node_modules/a": {"version": "1.9.0"}}}))
    place.write("a.json", '{"a": 1, "b": 2}\n')
    place.write("b.yaml", "a: 1\n")
    place.write("README.md", "one\n")
    cli = Cli(place)
    assert cli("exec", "--fork", "f", "--", "sh", "-ec", EDIT).returncode == 0
    return cli


def test_files_with_parts_come_by_parts_and_the_others_as_text(cli: Cli) -> None:
    lines = cli("diff", "f", "--view").stdout.splitlines()
    assert [line.partition(", line 3: ")[0] for line in lines[:5]] == [
        "# a.json: 1 changed",
        "~ a  1 → 2",
        "# b.yaml: no view: the new text is not YAML",
        "# package-lock.json: 1 raised",
        "~ a  1.9.0 → 1.10.0  raised",
    ]
    assert "+two" in lines
    assert "+x: [" in lines
    assert not any("node_modules" in line for line in lines)


def test_only_what_is_asked_for(cli: Cli) -> None:
    assert cli("diff", "f", "a.json", "--view").stdout == "# a.json: 1 changed\n~ a  1 → 2\n"


def test_the_text_stays_the_default_and_says_what_there_is(cli: Cli) -> None:
    done = cli("diff", "f")
    assert "node_modules/a" in done.stdout
    assert "note: by its parts: package-lock.json (packages): mudroom diff f --view" in done.stderr
    assert "by its parts" not in cli("diff", "f", "--view").stderr


def test_a_program_reads_the_rows(cli: Cli) -> None:
    views = cli.json("diff", "f", "a.json", "--view")["views"]
    row = {
        "kind": "changed",
        "label": "a",
        "before": "1",
        "after": "2",
        "note": "",
        "flagged": False,
        "lines": [],
        "rows": [],
    }
    assert views == [
        {"path": "a.json", "kind": "json", "summary": "1 changed", "rows": [row], "notes": [], "problem": ""}
    ]
    assert len(cli.json("diff", "f", "--view")["views"]) == 3
    assert "views" not in cli.json("diff", "f")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("f", "--view", "--stat"), "--view is not for --stat, --commits, --conflicts and --order risk"),
        (("f", "--view", "--order", "risk"), "--view is not for --stat, --commits, --conflicts and --order risk"),
        (("f", "now", "--view"), "--view is for the changes of a fork"),
    ],
)
def test_options_that_exclude_each_other(cli: Cli, words: tuple[str, ...], message: str) -> None:
    done = cli("diff", *words)
    assert done.returncode == 125
    assert message in done.stderr


@if_namespaces
def test_a_part_in_another_project_has_its_views(place: Place) -> None:
    other = place.root / "other"
    other.mkdir()
    (other / "a.json").write_text('{"a": 1}')
    cli = Cli(place)
    script = f"echo '{{\"a\": 2}}' >{other}/a.json"
    fork = json.loads(cli("run", "--json", "--root", str(other), "--", "sh", "-c", script).stdout)["fork"]
    lines = cli("diff", fork, "--view").stdout.splitlines()
    assert lines[1:] == [f"# {other}/a.json: 1 changed", "~ a  1 → 2"]


SECOND = b"for i in hidden.json a.json a.txt; do echo '{}' >$i; done; ln -s a l.json; rm -r d.json; echo {} >d.json"


def test_secrets_and_large_files_and_others_have_no_view(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write("hidden.json", '{"password": "x"}')
    place.write("a.json", '{"a": 1}')
    place.write("a.txt", "1")
    place.write("d.json/x", "1")
    session = place.session()
    session.forks.new("f")
    assert session.run([b"sh", b"-ec", SECOND], fork="f").exit_code == 0
    session = place.session(Settings(secrets_mask=(b"hidden.json",)))
    for name in (b"a.txt", b"l.json", b"hidden.json"):
        assert view_of(session, "f", name) is None
    of_directory = view_of(session, "f", b"d.json")
    assert of_directory is not None
    assert not of_directory.problem
    monkeypatch.setattr(reader, "KINDS", {"json": KINDS["json"]._replace(most=3)})
    view = view_of(session, "f", b"a.json")
    assert view is not None
    assert view.problem == "it has more than 3 B"
