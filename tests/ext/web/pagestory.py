"""What a user does with the page, told to any browser: in, the list of forks, a review by hunks, apply and undo, a
question, a conflict, dark and light."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING

from browser import Site, environment, mudroom, staged

import forked
from conftest import Place

if TYPE_CHECKING:
    from otherbrowsers import Window

LINES = "".join(f"x_{number} = {number}\n" for number in range(1, 41))
PAPER = {"Dark": "rgb(23, 22, 20)", "Light": "rgb(251, 250, 248)"}
"""``--paper`` of style.css."""


def prepare(place: Place) -> None:
    """A fork with something to review and something that conflicts, and a policy that asks."""
    place.write(".mudroom/policy.yaml", "commands:\n  classes: {unknown: require_approval}\n")
    place.write("build.sh", "echo built > out\n")
    place.write("code.py", LINES)
    place.write("other.txt", "a\nb\nc\n")
    edit = "sed -i -e 's/^x_3 = 3$/x_3 = None/' -e 's/^x_30 = 30$/x_30 = None/' code.py; sed -i s/b/B/ other.txt"
    staged(place, edit + "; echo new > new.txt")


def enter(window: Window, site: Site) -> None:
    """By the address that counts once, to the list of forks, to a review."""
    window.go(site.told["login"])
    window.see("h1", "Projects")
    assert window.call("() => [location.hash, document.cookie]") == ["", ""], "the key is taken out of the address"
    window.click("main .card a")
    window.see("h2", "Forks")
    window.click("main .card a", "try-1")
    window.see("[role=tree]")


def review(window: Window, place: Place) -> None:
    window.click("[role=treeitem]", "code.py")
    window.see("h2", "code.py")
    window.see("td.code .t-literal", "None")  # by a worker, which is a module
    window.click("section.hunk:nth-of-type(2) .hunk-bar input")
    window.click("input", "Apply other.txt")
    apply(window, "Apply 2 of 3, 1 of them in part")
    assert (place.project / "code.py").read_text() == LINES.replace("x_3 = 3\n", "x_3 = None\n")
    assert (place.project / "new.txt").read_text() == "new\n"
    assert (place.project / "other.txt").read_text() == "a\nb\nc\n"
    window.click("button", "Undo")
    window.wait("() => document.body.innerText.includes('taken back')")
    assert (place.project / "code.py").read_text() == LINES
    assert not (place.project / "new.txt").exists()


def apply(window: Window, button: str) -> None:
    window.click("button", button)
    confirm = "[...document.querySelectorAll('dialog[open] button')].some((one) => one.innerText === 'Apply')"
    found = f"() => ({confirm} && 'dialog') || (/Applied:|Nothing was applied/.test(document.body.innerText) && 'done')"
    if window.wait(found) == "dialog":
        window.click("dialog button", "Apply")
    window.wait("() => document.body.innerText.includes('Applied:')")


def answer(window: Window, place: Place) -> None:
    """It comes by itself: the page is told."""
    words = ("exec", "--fork", "f", "--agent", "coder", "--ask", "queue", "--json", "--", "sh", "build.sh")
    process = forked.popen(
        words, cwd=place.project, env=environment(place), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert "coder wants to run" in window.see(".ask", "sh build.sh")
        window.click(".ask button", "Allow once")
        out, err = process.communicate(timeout=60)
        assert out, err
        assert json.loads(out)["exit_code"] == 0
    finally:
        process.kill()
        process.communicate()


def decide(window: Window, place: Place, site: Site) -> None:
    """For both sides; what is decided here is what the terminal applies."""
    place.write("other.txt", "a\nmine\nc\n")
    window.go(site.address("f", "try-1", "conflicts"))
    window.see("h2", "other.txt")
    window.click("button", "Both")
    window.click("button", "Save decision")
    window.wait("() => document.body.innerText.includes('1 of 1 decided')")
    mudroom(place, "apply", "try-1", "--yes")
    assert (place.project / "other.txt").read_text() == "a\nmine\nB\nc\n"


def colours(window: Window) -> None:
    for name, paper in PAPER.items():
        window.click("header button", name)
        window.wait("(paper) => getComputedStyle(document.body).backgroundColor === paper", paper)


def shortcuts(window: Window) -> None:
    """A dialog has the keyboard to itself, and Escape closes it."""
    window.type("?")
    window.see("dialog[open] h2", "Shortcuts")
    assert window.call("() => document.querySelector('dialog').matches(':modal')")
    window.type("\ue00c")  # https://w3c.github.io/webdriver/#keyboard-actions
    window.wait("() => !document.querySelector('dialog')")


OPTIONAL = {"forced-color-adjust"}
"""Of colours that are the system's, which some browsers have not (https://www.w3.org/TR/css-color-adjust-1/#forced)."""


def declarations() -> Iterator[tuple[str, str]]:
    """Of all style sheets of the page, without what a browser may do without."""
    for sheet in (files("mudroom.ext.web") / "page").iterdir():
        if sheet.name.endswith(".css"):
            text = re.sub(r"/\*.*?\*/", "", sheet.read_text("utf-8"), flags=re.DOTALL)
            for block in re.findall(r"\{([^{}]*)\}", text):
                for one in block.split(";"):
                    name, colon, value = (part.strip() for part in one.partition(":"))
                    if colon and name not in OPTIONAL:
                        yield name, value.replace("!important", "").strip()


def understood(window: Window) -> None:
    """Each declaration, or the same one with a prefix, as some browsers have it."""
    every = sorted(set(declarations()))
    assert len(every) > 300
    unknown = window.call("(all) => all.filter(([name, value]) => !CSS.supports(name, value))", every)
    other = {(name.removeprefix("-webkit-"), value) for name, value in every if name.startswith("-webkit-")}
    assert {(name.removeprefix("-webkit-"), value) for name, value in unknown} <= other


def tell(window: Window, place: Place, site: Site) -> None:
    """All of it; the last change of the page is one that is not allowed."""
    prepare(place)
    enter(window, site)
    review(window, place)
    answer(window, place)
    understood(window)
    shortcuts(window)
    colours(window)
    decide(window, place, site)
    assert window.wrong == [], window.wrong
    window.call("() => document.body.setAttribute('style', 'color: red')")
    window.hear("policy: style-src-attr")  # so anything would have been seen


def lose(window: Window) -> None:
    """The server has ended while the page was open at a project."""
    window.wait("() => document.querySelector('.banner.lost')?.innerText.includes('reconnecting')")


def find(window: Window, place: Place) -> None:
    """It is there again: the page hears of what happens, by whatever way its browser connects anew."""
    window.wait("() => !document.querySelector('.banner.lost')")
    staged(place, "echo again > again.txt", "try-2")
    window.see("main .card a", "try-2")
    window.reload()
    window.see("main .card a", "try-2")
