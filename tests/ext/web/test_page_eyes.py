"""The page as eyes and hands meet it: narrow, enlarged, with the system's own colours, by the keyboard alone, and with
what cannot be seen in a name.

The numbers are those of WCAG 2.2: 1.4.10 (reflow: 320 pixels wide, or 256 high), 1.4.12 (text spacing), 2.4.3 and 2.4.7
(the keyboard is somewhere, and that is seen).
"""

from __future__ import annotations

import shlex
import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from browser import HOME, VIEWS, OpenPage, Site, comes, go, mudroom, serving, staged, usable, watch

from clients import free_port
from conftest import Place
from test_decide_page import COMMAND, HOST, attend, card, queue
from trying import tried

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from mudroom.vault.approvals.queue import Queue

__all__ = ["queue"]
pytestmark = [pytest.mark.deep, pytest.mark.slow]
BLANK = {
    " ": ["SP"],
    "  x": ["SP", "SP"],
    "x ": ["SP"],
    "a  b": ["SP", "SP"],
    "\u3000": ["IDSP"],
    "\u00a0": ["NBSP"],
    "\u2800": ["BLANK"],
    "\u200b": ["ZWSP"],
}
LONG = "a-name-" * 30
SPACED = """
* { line-height: 1.5 !important; letter-spacing: 0.12em !important; word-spacing: 0.16em !important; }
p { margin-bottom: 2em !important; }
"""
CUT = """
() => [...document.querySelectorAll("button, .button, .tag, .badge, h1, h2, h3, p, label")]
  .filter((one) => one.getClientRects().length && !one.closest(".clip, .hidden, .skip"))
  .filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== "inline")
  .map((one) => one.outerHTML.slice(0, 200))
"""
ON_TOP = """
(one) => {
  const { x, y } = one.getBoundingClientRect();
  return document.elementFromPoint(x + 60, y + 20)?.closest(".lines") === one;
}
"""
FOCUSED = """
() => {
  const one = document.activeElement;
  const text = one.getAttribute("aria-label") ?? one.innerText ?? "";
  return one === document.body ? "nowhere" : one.tagName + " " + text.replace(/\\s+/g, " ");
}
"""


@pytest.fixture
def lived_in(place: Place) -> Place:
    place.write("notes.txt", "one\ntwo\nthree\n")
    place.write("src/app.py", "".join(f"def f{n}(): return {n}\n" for n in range(60)))
    staged(place, "echo '# more' >> src/app.py", "first")
    mudroom(place, "apply", "first", "--yes")
    staged(
        place,
        f"sed -i s/one/ONE/ notes.txt; echo x > {LONG}.txt; echo 'on: push' > ci.yml; echo '{LONG}' >> src/app.py",
    )
    mudroom(place, "checkpoint", "green", "--fork", "try-1")
    staged(place, "curl -sm2 http://no.example/ || true; sed -i s/f3/F3/ src/app.py")
    tried(place, [f"echo 1 >> src/app.py; echo x > {LONG}.txt", "echo 2 >> src/app.py; rm notes.txt"])
    place.write("notes.txt", "uno\ntwo\nthree\n")
    return place


def part(page: Page, name: str) -> None:
    """Of the view "watch"."""
    page.get_by_role("tab", name=name).click()
    page.locator("#watch-part > :not([aria-busy=true])").first.wait_for()


def uncovered(page: Page) -> tuple[bool, bool]:
    """Whether the list of files can be used, and nothing lies over it; what is told above it comes when it comes."""
    lines = page.locator(".side .lines")
    lines.scroll_into_view_if_needed()
    box = lines.bounding_box()
    return box is not None and box["height"] >= 100, bool(lines.evaluate(ON_TOP))


def sideways(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def test_blanks_in_names_are_seen(place: Place, site: Site, page: Page) -> None:
    staged(place, "mkdir 'dir '; echo x > 'dir / '; " + "; ".join(f"echo x > {shlex.quote(name)}" for name in BLANK))
    page.goto(site.address("f", "try-1", "review"))
    rows = page.locator(".line[role=treeitem]")
    rows.nth(len(BLANK) + 1).wait_for()
    found = [row.locator(".name .odd").all_inner_texts() for row in rows.all()]
    assert sorted(found) == sorted([*BLANK.values(), ["SP"], ["SP"]])
    rows.last.locator(".name").click()
    page.locator("h2 .odd").first.wait_for()
    assert page.locator("h2 .odd").first.get_attribute("aria-label")


def test_nothing_is_wider_than_a_narrow_window(lived_in: Place, site: Site, open_page: OpenPage) -> None:
    page, found = open_page(), {}
    for width, height in ((320, 640), (320, 256), (640, 400)):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(site.url)
        page.reload()  # some of it is decided when the page comes
        page.wait_for_selector(HOME)
        found[width, height] = {name: by for name, by in widths(page, site) if by > 0}
    assert {size: wide for size, wide in found.items() if wide} == {}


def widths(page: Page, site: Site) -> Iterator[tuple[str, int]]:
    """By how much each view is too wide; and its parts can be used."""
    for name in VIEWS:
        go(page, site, name)
        if name == "review":
            page.get_by_role("treeitem").first.wait_for()
            comes(page, lambda: uncovered(page), (True, True))
        yield name, sideways(page)
        if name == "watch":
            for tab in ("Checkpoints", "Network", "Journal", "Resources"):
                part(page, tab)
                yield tab, sideways(page)
    page.goto(site.address("f", "try-1", "review"))
    page.get_by_role("treeitem").filter(has_text="app.py").locator(".name").click()
    page.locator(".hunk").first.wait_for()
    assert page.locator(".file-head").evaluate("one => one.scrollHeight - one.clientHeight") <= 1, (
        "part of it is not seen"
    )
    page.get_by_role("link", name="Files", exact=True).click()
    page.get_by_role("treeitem").filter(has_text="a-name-").locator(".name").click()
    page.locator(".hunk").first.wait_for()
    box = page.locator(".file-body").bounding_box()
    assert box is not None and box["height"] >= 100, "a long name leaves no room for the file"
    yield "file", sideways(page)


def test_text_may_be_spaced(lived_in: Place, site: Site, open_page: OpenPage) -> None:
    page = open_page(1280)
    found = {}
    for name in VIEWS:
        go(page, site, name)
        page.evaluate(
            "text => { const sheet = new CSSStyleSheet(); sheet.replaceSync(text);"
            " document.adoptedStyleSheets = [sheet]; }",
            SPACED,
        )
        found[name] = [*page.evaluate(CUT), *(["the page is too wide"] if sideways(page) > 0 else [])]
    assert {name: cut for name, cut in found.items() if cut} == {}


def test_what_is_chosen_is_seen_in_the_systems_own_colours(lived_in: Place, site: Site, open_page: OpenPage) -> None:
    page = open_page(forced_colors="active")
    paper = "one => getComputedStyle(one).backgroundColor"
    both = "one => [getComputedStyle(one).backgroundColor, getComputedStyle(one).color]"
    go(page, site, "review")
    page.locator(".line.active").wait_for()
    page.locator(".segments [aria-pressed=true]").last.wait_for()
    for chosen, other in (
        (".line.active", ".line:not(.active)"),
        (".diff .segments [aria-pressed=true]", ".diff .segments [aria-pressed=false]"),
        (".themes [aria-pressed=true]", ".themes [aria-pressed=false]"),
    ):
        assert page.locator(chosen).first.evaluate(paper) != page.locator(other).first.evaluate(paper), chosen
        assert page.locator(chosen).first.evaluate(both) == page.locator(".line.active").evaluate(both), (
            "one pair for all"
        )
    edge = "one => getComputedStyle(one).borderBottomColor"
    tabs = page.locator(".tabs a")
    assert tabs.nth(0).evaluate(edge) != tabs.nth(1).evaluate(edge)
    go(page, site, "watch")
    parts = page.locator(".parts button")
    assert parts.nth(0).evaluate(edge) != parts.nth(1).evaluate(edge)


def test_nothing_moves_for_whom_that_is_too_much(site: Site, open_page: OpenPage) -> None:
    page = open_page()
    page.route("**/api/v1/projects", lambda _route: None)
    page.goto(site.url + "#/new")
    page.goto(site.url + "#/")
    page.locator(".skeleton").first.wait_for()
    assert page.evaluate("document.getAnimations().length") == 0
    page.emulate_media(reduced_motion="no-preference")
    page.wait_for_function("() => document.getAnimations().length > 0")  # else nothing moves anyway


# --- where the keyboard is ---


def somewhere(page: Page) -> None:
    page.wait_for_function(f"() => ({FOCUSED})() !== 'nowhere'")


def settled(page: Page, wanted: str) -> None:
    """Wait until the keyboard is at what begins so; and it is seen there, unless it is the view as a whole."""
    page.wait_for_function(f"wanted => ({FOCUSED})().startsWith(wanted)", arg=wanted)
    seen = "one => getComputedStyle(one).outlineStyle !== 'none' || one.matches('main')"
    assert page.locator(":focus").evaluate(seen), "it is not seen"


def press(page: Page, name: str, within: Any = None) -> None:
    """With the keyboard."""
    usable((within or page).get_by_role("button", name=name, exact=True)).press("Enter")


def test_the_keyboard_after_answers(queue: Queue, page: Page) -> None:
    with queue.put(HOST, 60), queue.put(COMMAND, 60):
        one, other = card(page, HOST.fingerprint), card(page, "wants to run")
        for each in (one, other):
            each.locator("button:enabled").first.wait_for()
        attend(page)
        press(page, "Deny", one)
        one.get_by_text("Denied on the page").wait_for()
        settled(page, "LI claude wants to reach")
        page.keyboard.press("y")
        page.keyboard.press("Enter")
        other.locator("button[data-answer=once]:enabled").wait_for()  # what comes next is not answered along
        page.keyboard.press("Tab")
        page.keyboard.press("Escape")
        settled(page, "BUTTON Questions")
        page.keyboard.press("Enter")
        press(page, "Later")
        settled(page, "BUTTON Questions")
        assert page.locator("#decide").is_hidden()


def test_the_keyboard_when_somebody_else_answers(queue: Queue, page: Page) -> None:
    with queue.put(HOST, 60) as ticket:
        one = card(page, HOST.fingerprint)
        attend(page)
        one.get_by_label("Reason").focus()
        ticket.end("denied", "", "terminal")
        one.get_by_text("Denied on the terminal").wait_for()
        settled(page, "LI claude wants to reach")


def test_the_keyboard_after_a_fork_is_thrown_away(place: Place, site: Site, page: Page) -> None:
    staged(place, "echo 1 > a", "one")
    staged(place, "echo 1 > a", "two")
    go(page, site, "project")
    press(page, "Discard one")
    settled(page, "BUTTON Cancel")
    page.keyboard.press("Escape")
    settled(page, "BUTTON Discard one")
    page.keyboard.press("Enter")
    press(page, "Discard")
    page.get_by_role("link", name="one", exact=True).wait_for(state="detached")
    settled(page, "UL two")


def test_the_keyboard_after_an_apply_and_its_undo(place: Place, site: Site, page: Page) -> None:
    place.write("package.json", "{}\n")
    staged(place, "echo '{\"scripts\": {}}' > package.json; echo b > b.txt")
    go(page, site, "review")
    page.get_by_role("checkbox", name="Apply b.txt").first.uncheck()
    press(page, "Apply 1 of 2")
    settled(page, "BUTTON Cancel")
    press(page, "Apply")
    page.get_by_text("Applied: 1 written").wait_for()
    settled(page, "SECTION Applying")
    press(page, "Undo")
    page.get_by_text("Applied, and taken back").wait_for()
    somewhere(page)
    press(page, "Go on")
    page.locator(".bar").wait_for()
    settled(page, "MAIN")
    go(page, site, "project")
    press(page, f"Redo {site.get('/projects/' + site.project)['applies'][0]['id']}")
    page.get_by_role("button", name="Undo").wait_for()
    settled(page, "T")


def test_the_keyboard_after_a_rollback(place: Place, site: Site, page: Page) -> None:
    staged(place, "echo kept > kept.txt")
    go(page, site, "watch")
    part(page, "Checkpoints")
    page.get_by_label("Freeze what the fork holds now as").fill("green")
    press(page, "Make a checkpoint")
    page.locator(".point", has_text="green").wait_for()
    settled(page, "INPUT")
    staged(place, "echo late > late.txt")
    press(page, "Roll back to here…", page.locator(".point", has_text="green"))
    press(page, "Roll back")
    page.locator(".point", has_text="green").get_by_text("here now").wait_for()
    settled(page, "LI green")
    part(page, "Journal")
    press(page, "Verify the journal")
    page.get_by_text("Intact: ").wait_for()
    settled(page, "BUTTON Verify the journal")
    part(page, "Commands")
    page.get_by_label("Run a command in").fill("sleep 1000")
    press(page, "Run")
    page.get_by_text("running").first.wait_for()
    settled(page, "INPUT")
    press(page, "End…")
    settled(page, "BUTTON End it")
    press(page, "Let it run")
    somewhere(page)
    press(page, "End…")
    press(page, "End it")
    page.get_by_text("exit 143").wait_for()
    somewhere(page)


def test_the_keyboard_in_a_file(place: Place, site: Site, page: Page) -> None:
    """What is opened further goes away when all is open."""
    place.write("long.txt", "".join(f"{n}\n" for n in range(60)))
    staged(place, "sed -i -e s/^1$/one/ -e s/^40$/forty/ long.txt")
    go(page, site, "review")
    page.locator(".hunk").nth(1).wait_for()
    press(page, "Show all 32 lines")
    page.get_by_role("button", name="Show all 32 lines").wait_for(state="detached")
    somewhere(page)


def test_the_keyboard_from_a_folder_to_a_fork(place: Place, chromium: Browser) -> None:
    (place.home / "code" / "shop").mkdir(parents=True)
    wrong: list[str] = []
    with serving(place, "--root", str(place.home / "code")) as site, chromium.new_context() as context:
        page = context.new_page()
        watch(page, site.url, wrong)
        page.goto(site.told["login"])
        page.wait_for_selector(HOME)
        page.goto(site.url + "#/new")
        folders = page.get_by_role("listbox", name="Folders")
        folders.get_by_role("option", name="shop/").wait_for()
        folders.focus()
        page.keyboard.press("Space")
        page.get_by_label("Name of the fork").wait_for()
        settled(page, "H2 " + str(place.home / "code" / "shop"))
        press(page, "Another folder")
        settled(page, "UL Folders")
    assert wrong == []


# --- pictures ---


def png(wide: int, high: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = bytes((1 + (wide + 7) // 8) * high)
    head = struct.pack(">IIBBBBB", wide, high, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_pictures_of_one_pixel_and_of_very_many(place: Place, site: Site, page: Page) -> None:
    place.write("one.png", png(1, 1))
    place.write("many.png", png(9000, 5000))
    staged(place, "cp many.png new.png; cp one.png many.png; cp new.png one.png; rm new.png")
    go(page, site, "review")
    page.get_by_role("treeitem").filter(has_text="one.png").locator(".name").click()
    before, after = page.locator("figure").nth(0), page.locator("figure").nth(1)
    before.get_by_text("1 \N{MULTIPLICATION SIGN} 1 pixel, 64 times as large here").wait_for()
    assert before.locator("img").evaluate("one => one.clientWidth") == 64
    after.get_by_text("9,000 \N{MULTIPLICATION SIGN} 5,000 pixels").wait_for()
    assert after.locator("img").is_hidden()
    press(page, "Swipe")
    page.get_by_role("button", name="Draw them").wait_for()
    assert page.locator(".overlaid img:visible").count() == 0
    press(page, "Side by side", page.get_by_role("group", name="How images are compared"))
    press(page, "Draw it", after)
    after.locator("img").wait_for()
    somewhere(page)


# --- questions, for who looks elsewhere ---

STUBS = """
window.calls = [];
window.Notification = class { static permission = "default";
  static requestPermission() {
    calls.push("asked");
    return Promise.resolve(Notification.permission = window.allowed ?? "granted");
  }
  constructor(title, options) { calls.push("note: " + title + ": " + options.body); } close() {} };
window.AudioContext = class { currentTime = 0; destination = null;
  createGain() { return { gain: {}, connect() {} }; }
  createOscillator() { return { frequency: {}, connect() {}, start() { calls.push("tone"); }, stop() {} }; }
  close() { calls.push("closed"); } };
Object.defineProperty(document, "hidden", { get: () => window.away === true });
"""


def calls(page: Page) -> list[str]:
    return list(page.evaluate("calls.splice(0)"))


def test_nobody_is_told_elsewhere_who_did_not_ask_for_it(queue: Queue, page: Page) -> None:
    page.add_init_script(STUBS)
    page.reload()
    page.wait_for_selector(HOME)
    page.evaluate("window.away = true")
    with queue.put(HOST, 60):
        card(page, HOST.fingerprint).wait_for()
        assert calls(page) == []
        sound, desktop = page.get_by_label("Sound"), page.get_by_label("Desktop notifications")
        assert not sound.is_checked() and not desktop.is_checked()
        sound.check()
        desktop.check()
        page.wait_for_function("() => calls.includes('closed')")
        assert [one for one in calls(page) if one != "closed"] == ["tone", "tone", "asked"]
    with queue.put(COMMAND, 60):
        card(page, "wants to run").wait_for()
        told = [one for one in calls(page) if one != "closed"]
        assert told == ["tone", "tone", "note: <i>claude</i> wants to run: sh $'<b>bold</b>\\xe2\\x80\\xae.sh'"]
        page.evaluate("window.away = false")
    with queue.put(HOST._replace(host="other.example"), 60):
        card(page, "other.example").wait_for()
        assert [one for one in calls(page) if one != "closed"] == ["tone", "tone"], "the page is looked at"


def test_a_browser_that_shows_no_notifications(queue: Queue, page: Page) -> None:
    page.add_init_script(STUBS + "window.allowed = 'denied';")
    page.reload()
    page.get_by_role("button", name="Questions").click()
    page.get_by_label("Desktop notifications").click()
    page.get_by_text("the browser does not allow them").wait_for()
    assert not page.get_by_label("Desktop notifications").is_checked()
    assert calls(page) == ["asked"]


def test_a_server_that_goes_and_comes_again(place: Place, chromium: Browser) -> None:
    staged(place, "echo 1 > a")
    wrong: list[str] = []
    with chromium.new_context() as context:
        page = context.new_page()
        port = str(free_port())
        with serving(place, "--port", port) as site:
            watch(page, site.url, wrong)
            page.goto(site.told["login"])
            page.wait_for_selector(HOME)
            go(page, site, "review")
            page.get_by_role("treeitem").first.wait_for()
        page.get_by_text("The server does not answer: reconnecting").wait_for()
        assert page.get_by_role("treeitem").first.is_visible(), "what was there stays"
        with serving(place, "--port", port):
            page.get_by_text("The server does not answer: reconnecting").wait_for(state="detached")
            staged(place, "echo 2 > b")
            page.get_by_text("This fork has changed since you looked: 1 more file").wait_for()
    assert wrong == []
