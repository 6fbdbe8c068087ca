"""Files by their parts, as a user sees them in a browser: first where it pays, the text one key away."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from browser import Site, staged

from conftest import Place
from test_page_accessible import AXE, violations

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.deep, pytest.mark.slow]

OLD = {"node_modules/a": {"version": "1.9.0"}, "node_modules/lodash": {"version": "4.17.21", "integrity": "x"}}
NEW = {
    "node_modules/a": {"version": "1.10.0"},
    "node_modules/lodash": {"version": "4.17.21", "integrity": "y"},
    "node_modules/lodahs": {"version": "1.0.0", "resolved": "https://x.example/a.tgz"},
}
BASE = """
import sqlite3
made = sqlite3.connect("data.db")
made.executescript("create table users(id integer primary key, name); insert into users values(1, 'Ann'), (2, 'Bob')")
"""
EDIT = """
import json, sqlite3, zipfile
made = sqlite3.connect("data.db")
made.executescript("update users set name = 'Eve' where id = 1; insert into users values(3, 'Cy')")
made.execute("create index i on users(name)")
with zipfile.ZipFile("a.whl", "w") as wheel:
    wheel.writestr("a/__init__.py", "x = 1"), wheel.writestr("../evil.py", "x = 1")
open("damaged.ipynb", "w").write("{")
"""


def cell(name: str, source: str, outputs: int) -> object:
    row = {"cell_type": "code", "metadata": {}, "execution_count": outputs, "outputs": [{"text": "1"}] * outputs}
    return row | {"id": name, "source": source}


def book(*cells: object) -> str:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})


@pytest.fixture
def parted(place: Place, site: Site) -> Site:
    place.write("package-lock.json", json.dumps({"packages": OLD}))
    place.write("settings.json", '{"retries": 3, "hosts": ["a"]}\n')
    place.write("plot.ipynb", book(cell("a", "x = 1\ny = 2", 1), cell("b", "print(x)", 2)))
    subprocess.run([sys.executable, "-c", BASE], cwd=place.project, check=True)
    lock, notebook = json.dumps({"packages": NEW}), book(cell("a", "x = 1\ny = 3", 1), cell("b", "print(x)", 3))
    words = [shlex.quote(text) for text in (lock, '{"hosts": ["b", "a"], "retries": 3}\n', notebook, EDIT)]
    staged(
        place,
        f"echo {words[0]} >package-lock.json; printf %s {words[1]} >settings.json; printf %s {words[2]} >plot.ipynb;"
        f"{shlex.quote(sys.executable)} -c {words[3]}",
    )
    return site


def choose(page: Page, name: str) -> None:
    page.get_by_role("treeitem", name=name).click()
    page.get_by_role("heading", name=name).wait_for()


def test_parts_come_first_where_it_pays_and_the_text_is_one_key_away(parted: Site, page: Page) -> None:
    page.goto(parted.address("f", "try-1", "review"))
    choose(page, "package-lock.json")
    table = page.get_by_role("table", name="Changed packages")
    table.wait_for()
    first = table.get_by_role("row").nth(1)
    words = "+ added lodahs a new name, and like lodash; from https://x.example after: 1.0.0"
    assert first.inner_text().split() == words.split()
    assert page.get_by_text("1 raised, 1 changed, 1 added; 2 to look at").is_visible()
    assert table.get_by_role("rowheader", name="lodash changed; other files under the same version").is_visible()
    page.get_by_role("button", name="Text").click()
    page.get_by_role("region", name="Hunk 1 of 1").wait_for()
    page.keyboard.press("v")
    table.wait_for()
    assert page.get_by_role("region", name="Hunk 1 of 1").count() == 0

    page.keyboard.press("c")
    page.get_by_role("region", name="Hunk 1 of 1").wait_for()
    page.get_by_role("form", name="A remark about").get_by_role("textbox").first.fill("why?")
    page.keyboard.press("Control+Enter")
    page.locator(".thread-row").get_by_text("why?").wait_for()

    choose(page, "settings.json")
    page.get_by_role("region", name="Hunk 1 of 1").wait_for()
    page.keyboard.press("v")
    page.get_by_role("table", name="Changed keys").get_by_role("rowheader", name="hosts[0]").wait_for()

    choose(page, "plot.ipynb")
    cells = page.get_by_role("table", name="Changed cells")
    cells.get_by_text("outputs changed (2 → 3)").wait_for()
    assert cells.locator("pre .added").all_inner_texts() == ["+y = 3\n"]

    choose(page, "data.db")
    page.get_by_role("table", name="Changed tables").get_by_text("name='Ann'").wait_for()
    choose(page, "a.whl")
    page.get_by_role("table", name="Changed members").get_by_text("leads outside by ..").wait_for()
    page.get_by_role("button", name="File", exact=True).click()
    page.get_by_text("Binary file.").wait_for()

    choose(page, "damaged.ipynb")
    page.get_by_text("No cells: the new text is not a notebook of nbformat 4.").wait_for()
    page.get_by_role("region", name="Hunk 1 of 1").wait_for()


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (npm install --prefix dev/page)")
def test_nothing_grave(parted: Site, page: Page) -> None:
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(parted.address("f", "try-1", "review"))
    for name, parts in (("package-lock.json", "packages"), ("plot.ipynb", "cells"), ("data.db", "tables")):
        choose(page, name)
        page.get_by_role("table", name=f"Changed {parts}").wait_for()
        assert not violations(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.keyboard.press("Escape")
