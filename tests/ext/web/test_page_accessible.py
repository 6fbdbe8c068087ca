"""Every view, light and dark, wide and narrow, for people who do not see it or have no mouse: by axe-core's rules of
WCAG 2.0 to 2.2, levels A and AA, and its best practices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from browser import VIEWS, OpenPage, Site, go, mudroom, staged

from conftest import Place
from trying import tried

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = Path(__file__).parents[3] / "dev/page/node_modules/axe-core/axe.min.js"
pytestmark = [
    pytest.mark.deep,
    pytest.mark.slow,
    pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (npm install --prefix dev/page)"),
]
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
GRAVE = ("serious", "critical", "moderate")
CONFLICT = "sed -i s/one/ONE/ notes.txt; echo 'name = \"x\"' > pyproject.toml; rm gone.txt; printf '\\0\\1' > blob.bin"


@pytest.fixture
def lived_in(place: Place) -> Place:
    """A project with a fork that has some of everything, a checkpoint, a conflict, an apply, and a try."""
    place.write("notes.txt", "one\ntwo\nthree\n")
    place.write("gone.txt", "x\n")
    place.write("src/app.py", "def f():\n    return 1\n")
    staged(place, "echo '# more' >> src/app.py", "first")
    mudroom(place, "apply", "first", "--yes")
    staged(place, CONFLICT)
    mudroom(place, "checkpoint", "green", "--fork", "try-1")
    staged(place, "echo more >> src/app.py")
    tried(place, ["echo 1 >> src/app.py", "echo 2 >> src/app.py; rm notes.txt", "echo 1 >> src/app.py"], passed=[1])
    place.write("notes.txt", "uno\ntwo\nthree\n")
    return place


SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_grave(lived_in: Place, site: Site, open_page: OpenPage, width: int) -> None:
    page = open_page(width)
    found = {}
    for name in VIEWS:
        go(page, site, name)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            found[name, scheme] = violations(page)
    assert {where: grave for where, grave in found.items() if grave} == {}


def violations(page: Page) -> list[str]:
    """Each as its rule, what it says, and the first elements."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    options = {"runOnly": {"type": "tag", "values": TAGS}}
    done: dict[str, Any] = page.evaluate("options => axe.run(document, options)", options)
    assert len(done["passes"]) > 5, "nothing was looked at"
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: " + "; ".join(node["html"][:200] for node in one["nodes"][:3])
        for one in done["violations"]
        if one["impact"] in GRAVE
    ]
