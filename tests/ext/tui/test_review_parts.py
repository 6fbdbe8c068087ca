"""The terminal review of a fork that has changed a second project and the home: one list, one apply, one undo."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from driving import Driver, drive

from box import if_namespaces
from conftest import Place, environment, listing
from forked import run
from mudroom.ext.tui.conflict import ConflictScreen

pytest.importorskip("textual", reason="the extra tui is not installed")


NUMBERS = "".join(f"line {number}\n" for number in range(1, 41))
SCRIPT = """
echo p > p; sed -i 's/line 5$/line five/; s/line 30$/line thirty/' ../lib/code
echo b >> ~/.bashrc; mkdir -p ~/.tool/bin; echo t > ~/.tool/bin/tool
"""


@pytest.fixture
def lib(place: Place) -> Path:
    path = place.root / "lib"
    path.mkdir()
    (path / "code").write_text(NUMBERS)
    (place.home / ".bashrc").write_text("a\n")
    return path


@pytest.fixture
def fork(place: Place, lib: Path) -> str:
    roots = [os.fsencode(place.home), os.fsencode(lib)]
    return place.session().run([b"sh", b"-c", SCRIPT.encode()], roots=roots).fork


@pytest.mark.slow
@if_namespaces
def test_the_parts_are_chosen_applied_and_undone_by_keys(place: Place, lib: Path, fork: str) -> None:
    before = listing(place.home), listing(lib), listing(place.project)
    code, tool = os.fsencode(lib / "code"), os.fsencode(place.home / ".tool/bin/tool")

    async def script(driver: Driver) -> None:
        await driver.press("o")
        named = [row[4:].split() for row in driver.listed()]
        assert named.pop(5)[1].endswith("/lib/")
        assert named == [
            ["+", "p", "+1"],
            ["▾", "your", "home"],
            ["~", "!", ".bashrc", "+1"],
            ["▾", "your", "home:", ".tool/bin/"],
            ["+", "tool", "+1"],
            ["~", "code", "+2", "-2"],
        ]
        await driver.to_file(tool)
        await driver.press("space")
        await driver.to_file(code)
        await driver.press_on_hunk("tab", "j", "space")
        told = await driver.ask("a", "Apply to")
        assert f"in {lib}:\n  {lib}/code" in told
        assert f"in your home:\n  {place.home}/.bashrc" in told
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Applied"))
        assert f"1 written; in your home: 1 written; in {lib}: 1 written" in driver.dialog()
        assert not (place.home / ".tool").exists()
        assert (place.home / ".bashrc").read_text() == "a\nb\n"
        changed = (lib / "code").read_text()
        assert ("line five" in changed) != ("line thirty" in changed)
        await driver.press("u")
        await driver.until(lambda: "Take the last apply back" in driver.dialog())
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Undone"))
        assert "in your home: 1 brought back" in driver.dialog()
        await driver.press("escape")

    drive(place, fork, script)
    assert (listing(place.home), listing(lib), listing(place.project)) == before


@pytest.mark.slow
@if_namespaces
def test_a_conflict_in_the_home_is_decided(place: Place, fork: str) -> None:
    (place.home / ".bashrc").write_text("mine\n")

    async def script(driver: Driver) -> None:
        assert "1 conflict" in str(driver.review.query_one("#top").render())
        await driver.press("c")
        await driver.until(lambda: isinstance(driver.app.screen, ConflictScreen))
        assert f"{place.home}/.bashrc" in str(driver.app.screen.query_one("#what").render())
        await driver.press("2")
        await driver.until(lambda: any("all conflicts are decided" in told for told in driver.told()))
        await driver.press("escape")
        await driver.ask("a", "Apply to")
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Applied"))
        await driver.press("escape")

    drive(place, fork, script)
    assert (place.home / ".bashrc").read_text() == "a\nb\n"


@pytest.mark.slow
@if_namespaces
def test_a_part_that_changed_since_is_not_discarded(place: Place, lib: Path, fork: str) -> None:
    async def script(driver: Driver) -> None:
        (_home, (_tied, there)) = place.session().changes.parts(fork)
        there.forks.files(fork).write(b"code", b"other\n")
        there.forks.flush(fork)
        await driver.ask("d", "Discard the fork")
        await driver.press("y")
        await driver.until(lambda: "has changed" in str(driver.review.query_one("#banner").render()))

    drive(place, fork, script)
    assert place.session().vault.find(fork) is not None


@pytest.mark.slow
@if_namespaces
def test_the_parts_as_json(place: Place, lib: Path, fork: str) -> None:
    done = run(["review", fork, "--json"], cwd=place.project, env=environment(place))
    told = json.loads(done.stdout)
    assert [row["path"] for row in told["changes"]["files"]] == ["p"]
    home, other = told["roots"]
    assert (home["home"], home["path"], other["path"]) == (True, str(place.home), str(lib))
    assert {row["path"]: row["tags"] for row in home["changes"]["files"]}[".bashrc"] == ["executes-later", "content"]
    assert [(row["path"], row["hunks"]) for row in other["changes"]["files"]] == [("code", 2)]
    landed = run(["apply", fork, "--yes", "--reviewed", told["reviewed"]], cwd=place.project, env=environment(place))
    assert (landed.returncode, (lib / "code").read_text().count("line thirty")) == (0, 1)


@pytest.mark.slow
@if_namespaces
def test_a_remark_about_a_file_of_another_project(place: Place, lib: Path, fork: str) -> None:
    code = os.fsencode(lib / "code")

    async def script(driver: Driver) -> None:
        await driver.until(lambda: driver.files.count)
        await driver.to_file(code)
        await driver.press("r")
        await driver.until(lambda: driver.app.screen.query("#remark"))
        await driver.press(*"why", "ctrl+s")
        await driver.until(lambda: any("r1 is kept" in line for line in driver.told()))
        assert f"{lib}/code" in await driver.ask("w", "Remarks about")
        await driver.press("escape")
        await driver.until(lambda: any("r1" in line for line in driver.shown()))

    drive(place, fork, script)


pytest.importorskip("textual", reason="the extra tui is not installed")


EDIT = """
sed -i s/1.9.0/1.10.0/ package-lock.json
sed -i 's/"a": 1/"a": 2/' a.json
echo '{' >broken.ipynb
printf 'PK\\005\\006%018d' 0 | tr 0 '\\0' >blob
echo two >>README.md
"""


def test_parts_come_first_where_it_pays_and_the_text_is_one_key_away(place: Place) -> None:
    place.write("package-lock.json", json.dumps({"packages": {"node_modules/a": {"version": "1.9.0"}}}))
    place.write("a.json", '{"a": 1, "b": 2}\n')
    place.write("README.md", "one\n")
    session = place.session()
    session.forks.new("f")
    assert session.run([b"sh", b"-ec", EDIT.encode()], fork="f").exit_code == 0

    async def look(driver: Driver) -> None:
        await driver.by_directory()
        await driver.to_file(b"package-lock.json")
        assert "▌V shows its text" in {line.replace(" V", "▌V") for line in driver.shown()}
        assert driver.shown()[-2:] == [" 1 raised", " ~ a  1.9.0 → 1.10.0  raised"]
        await driver.press("V")
        await driver.until(lambda: driver.diff.layout_of.groups)
        assert any("node_modules" in line for line in driver.shown())
        assert " V shows its packages" in driver.shown()
        await driver.press("V")
        await driver.until(lambda: driver.diff.shown.parts)
        await driver.press("space")
        assert b"package-lock.json" not in driver.review.selection.picks
        await driver.press("space")
        assert b"package-lock.json" in driver.review.selection.picks

        await driver.to_file(b"a.json")
        assert any('"a": 2' in line for line in driver.shown())
        await driver.press("V")
        await driver.until(lambda: driver.diff.shown.parts)
        assert driver.shown()[-2:] == [" 1 changed", " ~ a  1 → 2"]

        await driver.to_file(b"broken.ipynb")
        assert " no cells: the new text is not a notebook of nbformat 4" in driver.shown()
        assert driver.diff.layout_of.groups

        await driver.to_file(b"blob")
        assert driver.shown()[-2:] == [" V shows it without them", " no members"]

        await driver.to_file(b"README.md")
        before = driver.shown()
        await driver.press("V", "j", "k")
        await driver.to_file(b"README.md")
        assert driver.shown() == before

    drive(place, "f", look, session=session)
