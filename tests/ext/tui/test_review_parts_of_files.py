"""Files by their parts in the terminal: first where it pays, the text one key away."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive

from conftest import Place

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
