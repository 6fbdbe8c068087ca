"""Messages that come and go lie on nothing: whatever can be pressed or read can be had beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import OpenPage, Site, go, mudroom, staged

from conftest import Place, tick

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.deep, pytest.mark.slow]

TEXT = "".join(f"line {number}\n" for number in range(1, 61))
SIZES = {
    "1280": (1280, 800, 1),
    "640": (640, 800, 1),
    "390": (390, 700, 1),
    "320": (320, 568, 1),
    "enlarged": (320, 256, 4),  # 1280 x 1024 at 400 %: WCAG 2.2, 1.4.10
}
VIEWS = ("project", "review", "conflicts", "watch")

TOLD = "document.documentElement.style.getPropertyValue('--told')"
COVERED = """() => {
  const strip = document.querySelector(".toasts");
  const clipped = (box, element) => {  // what is to be seen of it
    let {top, bottom, left, right} = box;
    for (let one = element; one && one !== document.body; one = one.parentElement) {
      if (one !== element && getComputedStyle(one).overflowY !== "visible") {
        const around = one.getBoundingClientRect();
        [top, bottom] = [Math.max(top, around.top), Math.min(bottom, around.bottom)];
        [left, right] = [Math.max(left, around.left), Math.min(right, around.right)];
      }
    }
    return {top, bottom, left, right};
  };
  const lies = (box, element) => {
    const [seen, over] = [clipped(box, element), strip.getBoundingClientRect()];
    if (seen.bottom - seen.top <= 1 || seen.right - seen.left <= 1) return false;
    return seen.bottom > over.top + 1 && seen.top < over.bottom - 1;
  };
  const isOther = (one) => !strip.contains(one) && !one.closest(".hidden") && one.checkVisibility();
  const others = (what) => [...document.querySelectorAll(what)].filter(isOther);
  const found = new Set();
  let looked = 0;
  for (const one of others("a[href], button, input, select, textarea, summary, [role=treeitem]")) {
    if (one.matches(".skip, :disabled")) continue;
    looked++;
    one.focus();
    if (document.activeElement !== one) one.scrollIntoView({block: "nearest"});
    if (lies(one.getBoundingClientRect(), one)) found.add(one.outerHTML.slice(0, 120));
  }
  scrollTo(0, 1e6);
  for (const one of others("body *")) {
    for (const node of one.childNodes) {
      if (node.nodeType !== Node.TEXT_NODE || !node.data.trim()) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      looked++;
      if (lies(range.getBoundingClientRect(), one)) found.add(node.data.slice(0, 80));
    }
  }
  scrollTo(0, 0);
  const wide = document.documentElement.scrollWidth - innerWidth;
  return {looked, found: [...found], high: strip.getBoundingClientRect().height, wide};
}"""


@pytest.fixture
def busy(place: Place, site: Site) -> Site:
    """Forks, an apply, and a conflict."""
    place.write("f", TEXT)
    staged(place, "echo x > new", "first")
    mudroom(place, "apply", "first", "--yes")
    for number in range(3):
        staged(place, f"echo {number} > other", f"more-{number}")
    staged(place, "sed -i 's/^line 5$/theirs/' f; for n in 1 2 3 4 5 6; do echo $n > file-$n; done")
    tick()
    place.write("f", TEXT.replace("line 5\n", "ours\n"))
    return site


def project_of(site: Site) -> str:
    return f"{site.url}#/p/{site.project}"


def trouble(page: Page, times: int) -> None:
    """Messages that stay: what is asked for fails."""
    page.route("**/undo", lambda route: route.abort())
    undo = page.get_by_role("table").get_by_role("button", name="Undo")
    told = page.get_by_role("status", name="Messages").locator(".toast")
    for number in range(times):
        undo.click()
        told.nth(number).wait_for()


@pytest.mark.parametrize("size", SIZES)
def test_they_cover_nothing(busy: Site, open_page: OpenPage, size: str) -> None:
    width, height, scale = SIZES[size]
    page = open_page(width, height, enlarged=scale)
    page.goto(project_of(busy))
    page.get_by_role("heading", name="Applies").wait_for()
    trouble(page, 2)
    for view in VIEWS:
        go(page, busy, view)
        done = page.evaluate(COVERED)
        assert done["looked"] > 15, view
        assert done["high"] > 25, "the messages are there"
        assert (done["found"], done["wide"]) == ([], 0), view


def test_what_is_at_the_lower_edge_stands_on_them(busy: Site, open_page: OpenPage) -> None:
    """The questions, and what saves a decision."""
    page = open_page(640, 500)
    page.goto(project_of(busy))
    trouble(page, 3)
    page.evaluate("hash => { location.hash = hash }", f"#/p/{busy.project}/f/try-1/conflicts")
    page.get_by_role("button", name="Fork's everywhere").click()
    top = page.locator(".toasts").bounding_box()
    save = page.locator(".save").bounding_box()
    assert top and save
    assert save["y"] + save["height"] <= top["y"] + 1
    page.get_by_role("button", name="Questions").click()
    panel = page.locator("#decide").bounding_box()
    assert panel
    assert panel["y"] + panel["height"] <= top["y"] + 1


def test_the_keyboard_is_not_under_them(busy: Site, open_page: OpenPage) -> None:
    """What was pressed is at the lower edge when what came of it is told there."""
    page = open_page(390, 500)
    page.goto(project_of(busy))
    undo = page.get_by_role("table").get_by_role("button", name="Undo")
    undo.focus()
    page.evaluate("() => scrollBy(0, document.activeElement.getBoundingClientRect().bottom - innerHeight)")
    page.route("**/undo", lambda route: route.abort())
    page.keyboard.press("Enter")
    page.locator(".toast").wait_for()
    page.wait_for_function(f"() => !['', '0px'].includes({TOLD})")
    assert page.evaluate("() => document.activeElement.textContent").strip().startswith("Undo")
    bottom = page.evaluate("() => document.activeElement.getBoundingClientRect().bottom")
    assert bottom <= page.evaluate("() => document.querySelector('.toasts').getBoundingClientRect().top") + 1


def test_they_are_told_and_go(busy: Site, page: Page) -> None:
    """By a place that a screen reader knows before there is anything to say; and nothing is left of their room."""
    page.goto(project_of(busy))
    place = page.get_by_role("status", name="Messages")
    assert (place.count(), place.get_attribute("aria-live")) == (1, "polite")
    page.evaluate("() => { window.told = document.querySelector('.toasts') }")
    trouble(page, 1)
    assert page.evaluate("() => window.told === document.querySelector('.toasts') && window.told.textContent")
    page.wait_for_function(f"() => !['', '0px'].includes({TOLD})")
    place.get_by_role("button", name="Close the message").click()
    page.wait_for_function(f"() => {TOLD} === '0px'")
