"""A monkey at the page, in two tabs of a real browser: whatever can be clicked, all keys, and what others do meanwhile.

What a tab asks the server for is recorded: an apply has to name exactly what that tab has shown as chosen.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from browser import Site, browsing, serving, watch

from conftest import Place
from monkey.chance import Chance, Walk
from monkey.model import Wish, in_repository, with_what_goes_along, wrong_after
from monkey.world import FORK, Decided, World
from mudroom.errors import MudroomError
from mudroom.ext.web.api.endpoint import id_of

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Request, Response
    from playwright.sync_api import Page as Tab

PATIENCE = 30.0
"""Seconds for what is expected to come at once."""
LOST = 10.0
"""Seconds after which a request is taken for one of a page that has gone: of its end nobody may be told."""
SHORTCUTS = Path(__file__).parents[3] / "src/mudroom/ext/web/page/shortcut.js"
OFTEN = {"a": 6, "x": 8, "j": 4, "n": 4, " ": 2, "Enter": 3, "Escape": 3, "1": 2, "H": 0.3, "T": 0.3}
"""How often a key comes; others once."""
WORDS = (
    (r"apply( all)? \d|apply$", 14.0), ("apply", 3.0), ("discard", 0.3), ("undo|redo|take", 3.0), ("reload|go on", 6.0),
    ("save|ours|theirs|both|the (fork|project)", 4.0), ("system|.?light|.?dark|mudroom|skip|questions|\\?", 0.2),
)  # fmt: skip
"""How often something is clicked whose name begins so; others once."""
SIZES = ((1280, 800), (390, 844), (320, 300), (1920, 1080))

CONTROLS = """() => {
  const found = [];
  const all = ["button:not([disabled])", "a[href]", "input:not([disabled])", "[role=treeitem]", "summary", "select",
    "textarea", "[role=separator]"].join();
  window.monkeys = [];
  for (const one of document.querySelectorAll(all)) {
    const box = one.getBoundingClientRect();
    if (!box.width || !box.height || !one.checkVisibility()) continue;
    const name = one.getAttribute("aria-label") || one.textContent || one.placeholder || one.tagName;
    window.monkeys.push(one);
    found.push(name.trim().replace(/\\s+/g, " ").slice(0, 80));
  }
  return found;
}"""
POINT = """(number) => {
  const one = window.monkeys[number];
  one.scrollIntoView({ block: "nearest", inline: "nearest" });
  const box = one.getBoundingClientRect();
  const x = box.left + Math.min(box.width / 2, 40), y = box.top + Math.min(box.height / 2, 20);
  const hit = document.elementFromPoint(x, y);
  return hit && (one.contains(hit) || hit.contains(one) || hit.closest("label")?.contains(one)) ? [x, y] : null;
}"""
SHOWN = """() => {
  return [...document.querySelectorAll(".lines [role=treeitem]:not([aria-expanded])")].map((one) =>
    [one.querySelector("input[type=checkbox]").getAttribute("aria-label").slice(6), one.getAttribute("aria-checked")]);
}"""
STATE = """() => {
  const main = document.querySelector("main");
  return { text: (main?.innerText ?? "").trim(), all: document.body.innerText.trim(), title: document.title,
    busy: main?.getAttribute("aria-busy") === "true" || Boolean(document.querySelector(".course[aria-busy=true]")) };
}"""


class Asked(NamedTuple):
    method: str
    path: str
    body: Any


class Known(NamedTuple):
    """What the fork holds before a step."""

    fingerprint: str
    wishes: dict[str, Wish]
    decided: Decided


class Page:
    def __init__(self, place: Place, walk: Walk) -> None:
        self.place, self.walk = place, walk
        self.world = World(place, walk)
        self.wrong: list[str] = []
        self.asked: list[Asked] = []
        self.open_requests: dict[Any, tuple[Tab, float]] = {}
        self.site: Site
        self.project = ""
        self.landed = 0
        self.keys = {key: OFTEN.get(key, 1.0) for key in keys_of_the_page()}

    def go(self) -> None:
        self.world.run("echo first > first; sed -i -e '3s/.*/the fork/' -e '15s/.*/the fork, too/' text.txt")
        try:
            with serving(self.place) as self.site, browsing() as browser:
                self.project = self.site.project
                context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
                self._walk(context)
                context.close()
        finally:
            self.world.close()

    def _walk(self, context: BrowserContext) -> None:
        tabs = [self._tab(context, self.site.told["login"]), self._tab(context, self.site.url)]
        for tab in tabs:
            self._to_review(tab)
        seen: list[Any] = [[], []]
        while (chance := self.walk.next()) is not None:
            number = int(chance.random() * 1.4)
            tab = tabs[number]
            known = self._known()
            if not tab.evaluate("document.querySelector('dialog[open]') !== null"):
                seen[number] = tab.evaluate(SHOWN)  # else what counts is what was shown when the question was asked
            shown = seen[number]
            what = chance.weighed({"click": 14, "key": 7, "outside": 3, "address": 2, "back": 0.6, "forward": 0.5,
                                   "reload": 0.5, "size": 0.4, "write": 0.4})  # fmt: skip
            did = self._do(tab, what, chance)
            self.walk.say(f"tab {number}: {did}")
            for one in tabs:
                self._settle(one)
            self._check(known, shown, did)

    def _tab(self, context: BrowserContext, address: str) -> Tab:
        tab = context.new_page()
        tab.set_default_timeout(PATIENCE * 1000)
        watch(tab, self.site.url, self.wrong)
        tab.on("request", lambda request: self._begins(tab, request))
        tab.on("requestfinished", self._ended)
        tab.on("requestfailed", self._ended)
        tab.on("response", self._answered)
        tab.goto(address)
        tab.wait_for_selector("main:not([aria-busy='true'])")
        return tab

    def _begins(self, tab: Tab, request: Request) -> None:
        path = request.url.removeprefix(self.site.url)
        if request.is_navigation_request():  # what the page before it has asked for is over
            self.open_requests = {one: since for one, since in self.open_requests.items() if since[0] is not tab}
        if not path.startswith("api/v1/events"):
            self.open_requests[request] = (tab, time.monotonic())
        if request.method != "GET":
            body = request.post_data
            self.asked.append(Asked(request.method, path.removeprefix("api/v1"), json.loads(body) if body else None))

    def _ended(self, request: Request) -> None:
        self.open_requests.pop(request, None)

    def _answered(self, response: Response) -> None:
        if response.status >= 500:
            self.wrong.append(f"{response.request.method} {response.url}: {response.status}")

    # --- one step ---

    def _do(self, tab: Tab, what: str, chance: Chance) -> str:
        if what == "outside":
            self.world.outside(chance)
        elif what == "click":
            return self._click(tab, chance)
        elif what == "key":
            key = chance.weighed(self.keys)
            tab.keyboard.press("Space" if key == " " else key)
            return f"key {key}"
        elif what == "address":
            self._to_review(tab, chance.one(("review", "review", "conflicts", "watch")))
        elif what == "back":
            tab.go_back()
            if not tab.url.startswith(self.site.url):  # where every tab begins
                tab.go_forward()
        elif what == "forward":
            tab.go_forward()
        elif what == "reload":
            tab.reload()
        elif what == "size":
            width, height = chance.one(SIZES)
            tab.set_viewport_size({"width": width, "height": height})
        else:
            tab.keyboard.type(chance.one(("a", "text", "/", "é\u202e", "<b>")))
        return what

    def _to_review(self, tab: Tab, view: str = "review") -> None:
        tab.goto(f"{self.site.url}#/p/{self.project}/f/{FORK}/{view}")

    def _click(self, tab: Tab, chance: Chance) -> str:
        names: list[str] = tab.evaluate(CONTROLS)
        weights = {number: weight_of(name) for number, name in enumerate(names)}
        for _try in range(5):
            number = chance.weighed(weights)
            at = tab.evaluate(POINT, number)
            if at is not None:
                tab.mouse.click(*at)
                return f"click {names[number]!r}"
        return "click nothing"

    def _settle(self, tab: Tab) -> None:
        """Until nothing is asked for any more, and no job runs."""
        until = time.monotonic() + PATIENCE
        while True:
            tab.wait_for_timeout(5)
            state = tab.evaluate(STATE)
            running = [one for one in self.site.get(f"/projects/{self.project}/jobs") if one["state"] == "running"]
            begun = time.monotonic() - LOST
            self.open_requests = {one: since for one, since in self.open_requests.items() if since[1] > begun}
            if not self.open_requests and not state["busy"] and not running and state["text"]:
                return
            if time.monotonic() > until:
                self.walk.fail(f"it is at work still, or shows nothing: {list(self.open_requests)} {running} {state}")

    # --- what always holds ---

    def _known(self) -> Known:
        try:
            return Known(self.world.session.changes.fingerprint(FORK), self.world.wishes(), self.world.decided())
        except (MudroomError, OSError):  # what is in it may be half on its way into the project
            return Known("", {}, {})

    def _check(self, known: Known, shown: Any, did: str) -> None:
        self.walk.require(self.wrong, "what must never happen on a page")
        asked, self.asked = self.asked, []
        for one in asked:
            self.walk.say(f"    asks {one.method} {one.path} {json.dumps(one.body)[:300]}")
        applies = [one for one in asked if one.path.endswith("/apply")]
        turns = [one for one in asked if one.path.endswith(("/undo", "/redo"))]
        meant = {
            "apply": applies,
            "undo|redo|take|rest": turns,
            "discard": [one for one in asked if one.method == "DELETE"],
        }
        for name, sent in meant.items():
            if sent and not re.search(name, did, re.IGNORECASE) and did not in ("key Enter", "key  "):
                self.walk.fail(f"nobody has asked for that: {sent}")
        for one in applies:
            self.walk.require(wrong_request(one.body, shown, known), "what is asked for is not what is shown as chosen")
        news = self.world.look_at_applies()
        for name, state in news.items():
            if state == "applied" and applies:
                self._check_landing(name, applies, known)
            elif turns and state == "undone":
                self.world.note_undone(name)
            elif turns and state == "applied":
                self.world.note_landing(name)
            else:
                self.walk.fail(f"{name} is {state}, and nobody has asked for it")
        self.world.require_still(did)

    def _check_landing(self, name: str, applies: list[Asked], known: Known) -> None:
        (one,) = applies
        if one.body["reviewed"] != known.fingerprint:
            self.walk.fail(f"{name} was applied, and the fork was something else than what was shown")
        if not any(one.body.get(how) for how in ("git", "backups", "markers")):
            wishes = chosen_of(one.body, known.wishes)
            wrong = wrong_after(self.world.tree, self.world.now(), wishes, known.decided)
            self.walk.require(wrong, f"{name} is not what was asked for")
        self.world.note_landing(name)
        self.landed += 1


def keys_of_the_page() -> list[str]:
    """From the table that the help is made of."""
    found = re.findall(r"keys: \[([^\]]*?|\"\]\"|\"\[\")\], scope", SHORTCUTS.read_text())
    keys = sorted({key for one in found for key in re.findall(r'"([^"]+)"', one)})
    assert len(keys) > 25, "the table of shortcuts is read no more"
    return [*keys, "Tab", "Shift+Tab", "ArrowRight"]


def weight_of(name: str) -> float:
    return next((weight for words, weight in WORDS if re.match(words, name, re.IGNORECASE)), 1.0)


def wrong_request(body: Any, shown: Any, known: Known) -> list[str]:
    """Of an apply, whatever is not as the tab has shown it before."""
    ids = {id_of(path.encode("utf-8", "surrogateescape")): path for path in known.wishes}
    wanted = None if body["files"] is None else {ids.get(one["id"], one["id"]): one for one in body["files"]}
    found = []
    for path, checked in shown:
        if path not in known.wishes:  # shown escaped, or the tab has shown another state of the fork, which is refused
            continue
        named = is_protected(path) or in_repository(path)
        is_sent = (wanted is None and not named) or (wanted is not None and path in wanted)
        if is_sent != (checked != "false"):
            found.append(f"{path} was shown as {checked}, and is {'' if is_sent else 'not '}asked for")
        elif wanted is not None and is_sent and checked == "true" and wanted[path].get("blocks") is not None:
            found.append(f"{path} was shown as chosen whole, and only {wanted[path]} is asked for")
    return found


def is_protected(path: str) -> bool:
    return path.startswith((".git/hooks", ".git/config", ".mudroom"))


def chosen_of(body: Any, wishes: dict[str, Wish]) -> dict[str, Wish]:
    if body["files"] is None:
        return {path: wish for path, wish in wishes.items() if not in_repository(path)}
    ids = {id_of(path.encode("utf-8", "surrogateescape")): path for path in wishes}
    found = {}
    for one in body["files"]:
        blocks = one.get("blocks")
        wish = wishes[ids[one["id"]]]
        blocks = None if blocks is None else frozenset(blocks)
        found[ids[one["id"]]] = wish._replace(blocks=blocks, mode=one.get("mode", True))
    # Of a repository that nobody has asked for, hooks and settings land that are named, and nothing else.
    found = {path: wish._replace(known=wish.known and not in_repository(path)) for path, wish in found.items()}
    return with_what_goes_along(found, wishes)
