"""Where a directory has become a file, or a file a directory: nothing lands that was not shown as chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from browser import Site, staged

from conftest import Place, listing
from mudroom.core.merge.pick import WHOLE
from mudroom.core.tree.change import Change
from mudroom.core.tree.choice import select_exactly
from mudroom.core.tree.dependent_rows import DependentRow, complete_selection, needs, row_of
from mudroom.ext.tui.choice import choice_of, complete_picks, first_choice, items_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCRIPT = "rm -r d; echo now > d; rm g; mkdir -p g/s; cat /etc/hostname > g/a; echo 2 > g/s/b"


@pytest.fixture
def turned(place: Place, site: Site) -> Site:
    for name in ("d/x", "d/e/y", "g"):
        place.write(name, f"this is {name}\n")
    staged(place, SCRIPT)
    return site


def apply(site: Site, *paths: str) -> tuple[int, Any]:
    address = f"/projects/{site.project}/forks/try-1"
    found = site.get(address + "/changes")
    files = [{"id": one["id"], "blocks": None, "mode": True} for one in found["rows"] if one["path"] in paths]
    assert len(files) == len(paths)
    status, answer = site.ask("POST", address + "/apply", {"reviewed": found["fingerprint"], "files": files})
    return status, answer


def test_a_request_for_one_without_the_other_is_refused(place: Place, turned: Site) -> None:
    before = listing(place.project)
    status, problem = apply(turned, "d")
    said = "d goes only together with d/e/y and 1 more"
    assert (status, problem["error"], problem["hint"]) == (400, said, "choose all of them")
    status, problem = apply(turned, "g/s/b")
    assert (status, problem["error"]) == (400, "g/s/b goes only together with g")
    assert listing(place.project) == before


@pytest.mark.parametrize("paths", [["d", "d/x", "d/e/y"], ["d/x"], ["g", "g/a", "g/s/b"]])
def test_what_goes_together_is_applied(turned: Site, paths: list[str]) -> None:
    status, job = apply(turned, *paths)
    while job["state"] == "running":
        job = turned.get(f"/jobs/{job['id']}")
    assert (status, job["problem"], job["landed"]["conflicts"]) == (202, None, [])


def test_what_is_needed_is_what_an_apply_takes(place: Place) -> None:
    """Of any choice that is gathered, the rows that land are the rows that are chosen."""
    for name in ("d/x", "d/e/y", "g"):
        place.write(name, f"this is {name}\n")
    session, result = place.sh(SCRIPT + "; mkdir -p h; mv d h/d; ln -s d link")
    changes = session.changes.of(result.fork).changes
    rows = {item.path for item in items_of(changes)}
    needed = needs(row_of(item.change) for item in items_of(changes))
    assert needed.keys() == {b"g", b"g/a", b"g/s/b"}
    for path in sorted(rows):
        picked = complete_selection({path}, needed, ())
        landing = {one.path for one in select_exactly(changes, sorted(picked)) if one.path in rows}
        assert landing == picked, path


def test_moves_out_of_a_directory_that_became_a_file() -> None:
    rows = (DependentRow(b"d", b"", "other"), DependentRow(b"new", b"d/old"), DependentRow(b"newer", b"elsewhere"))
    assert needs(rows) == {b"d": {b"new"}}


def test_the_full_screen_has_the_same_rules(place: Place) -> None:
    for name in ("d/x", "g"):
        place.write(name, f"this is {name}\n")
    session, result = place.sh(SCRIPT)
    changes: tuple[Change, ...] = session.changes.of(result.fork).changes
    items = items_of(changes)
    first = first_choice(items)
    assert set(first) == {b"d", b"d/x", b"g", b"g/a", b"g/s/b"}
    without = {path: pick for path, pick in first.items() if path != b"d/x"}
    assert b"d" not in complete_picks(items, without, first.keys())
    found = choice_of(items, complete_picks(items, {b"g/a": WHOLE}, ()))
    assert found is not None and set(found.paths) == {b"g", b"g/a", b"g/s/b"}


@pytest.mark.deep
@pytest.mark.slow
def test_the_page_shows_that_they_go_together(place: Place, turned: Site, page: Page) -> None:
    page.goto(turned.address("f", "try-1", "review"))
    page.get_by_role("tree", name="Changed files").wait_for()
    box = page.get_by_role("treeitem").get_by_role("checkbox", name="Apply d", exact=True)
    inside = page.get_by_role("treeitem").get_by_role("checkbox", name="Apply d/x")
    inside.uncheck()
    assert not box.is_checked()
    page.get_by_text("4 of 6 chosen").wait_for()
    box.check()
    assert inside.is_checked()
    page.get_by_role("treeitem").filter(has=page.get_by_title("d", exact=True)).locator(".name").click()
    page.get_by_text("It was a directory: it goes only together with d/e/y, d/x.").wait_for()
    page.get_by_role("checkbox", name="Apply all files").uncheck()
    page.get_by_role("tree").get_by_role("checkbox", name="Apply g/a").check()
    page.get_by_role("button", name="Apply 3 of 6").click()
    page.get_by_text("Applied: ").wait_for()
    assert (place.project / "g/a").is_file() and (place.project / "g/s/b").is_file()
    assert (place.project / "d/x").is_file()
