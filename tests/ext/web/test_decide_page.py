"""Questions on the page in a real browser, of real commands that wait: answered, answered elsewhere, asked anew."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from browser import OpenPage, environment, mudroom, serving, watch

import forked
from clients import free_port
from conftest import Place
from mudroom.core.approval.approval import CommandQuestion, HostQuestion
from mudroom.core.command.verdict import Verdict
from mudroom.vault.approvals.queue import Queue
from test_page_accessible import AXE, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

NOBODY = "nobody.invalid"
"""Never looked up: it is not allowed."""
ASK = """
import socket, sys
gate = socket.create_connection(("127.0.0.1", 3128))
gate.sendall(b"CONNECT %s HTTP/1.0\\r\\n\\r\\n" % sys.argv[1].encode())
print(gate.makefile().read())
"""
MOVED = """() => new MutationObserver(() => {
  const cards = [...document.querySelectorAll(".ask")];
  if (cards.length > 1) window.moved ??= cards.at(-1).querySelectorAll("button[data-answer]:disabled").length;
}).observe(document.body, { childList: true, subtree: true })"""
"""How many answers the second card does not take when there is one: counted before anything is drawn."""
HOST = HostQuestion("registry.example", 443, "tls", "", "claude")
COMMAND = CommandQuestion(
    (b"sh", b"<b>bold</b>\xe2\x80\xae.sh"),
    b"/p",
    "try-1",
    "<i>claude</i>",
    Verdict("require_approval", ("unknown",), "class unknown", "a <u>script</u>"),
    "",
    "1234",
)


@pytest.fixture
def queue(place: Place) -> Queue:
    place.write(".git/HEAD", "")
    place.write("ask.py", ASK)
    place.write("build.sh", "echo built > out\n")
    place.write(".mudroom/policy.yaml", "commands:\n  classes: {unknown: require_approval}\n")
    return Queue(os.fsencode(mudroom(place, "vault", "init").strip()))


@contextmanager
def started(place: Place, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = forked.popen(
        words,
        cwd=place.project,
        env=environment(place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=60)
    assert out, err
    found: dict[str, Any] = json.loads(out)
    return found


def card(page: Page, text: str) -> Locator:
    return page.locator(".ask").filter(has_text=text)


def attend(page: Page) -> None:
    """Have the pointer among the questions: a card that has ended does not go meanwhile."""
    page.locator("#decide").hover()


def press(one: Locator, name: str) -> None:
    one.get_by_role("button", name=name, exact=True).click()


def test_an_agents_command_waits_for_the_page(place: Place, queue: Queue, page: Page) -> None:
    words = ("exec", "--fork", "f", "--agent", "coder", "--ask", "queue", "--json", "--", "sh", "build.sh")
    with started(place, *words) as process:
        one = card(page, "sh build.sh")
        one.get_by_text("coder wants to run").wait_for()
        assert page.title().startswith("(1) ")
        assert page.evaluate("document.activeElement.tagName") == "BODY", "the keyboard stays where it is"
        assert str(place.project / "build.sh") in one.inner_text()
        press(one, "Allow once")
        one.get_by_text("Allowed on the page").wait_for()
        assert result(process)["exit_code"] == 0
    assert not page.title().startswith("(")


@pytest.mark.deep
def test_the_users_own_command_asks_the_page_about_a_host(place: Place, queue: Queue, page: Page) -> None:
    with started(place, "run", "--json", "--no", "--", sys.executable, "ask.py", f"{NOBODY}:443") as process:
        one = card(page, f"{NOBODY}:443")
        one.get_by_text("A command of yours wants to reach").wait_for()
        one.get_by_label("Reason").fill("not today")
        press(one, "Deny")
        assert "asked, and refused on the page (not today)" in result(process)["stdout"]


@pytest.mark.deep
def test_always_writes_what_is_shown(place: Place, queue: Queue, page: Page) -> None:
    with queue.put(HOST, 60) as ticket:
        one = card(page, HOST.fingerprint)
        always = one.get_by_role("button", name="Always deny")
        always.wait_for()
        described = page.locator("#" + str(always.get_attribute("aria-describedby")))
        assert described.inner_text() == "writes deny registry.example:443"
        with page.expect_response("**/questions/*"):
            always.click()
        one.get_by_text("Denied on the page, always").wait_for()
        assert ticket.look() is not None
    assert HOST.fingerprint in (place.answers / "permissions.yaml").read_text()


@pytest.mark.deep
def test_a_rule_that_cannot_be_written_is_said(place: Place, queue: Queue, page: Page) -> None:
    place.write(".mudroom/local/permissions.yaml", "allow: {")
    with queue.put(HOST, 60):
        press(card(page, HOST.fingerprint), "Always allow")
        page.get_by_text("the answer holds, but its rule is not written").wait_for()


@pytest.mark.deep
def test_two_pages_and_a_terminal_see_one_answer(queue: Queue, page: Page, open_page: OpenPage) -> None:
    other = open_page(390)
    with queue.put(HOST, 60) as ticket:
        for each in (page, other):
            card(each, HOST.fingerprint).wait_for()
            attend(each)
        press(card(other, HOST.fingerprint), "Deny")
        card(page, HOST.fingerprint).get_by_text("Denied on the page").wait_for()
        assert ticket.look() is not None
    with queue.put(COMMAND, 60) as ticket:
        for each in (page, other):
            card(each, "wants to run").wait_for()
            attend(each)
        ticket.end("denied", "", "terminal")
        for each in (page, other):
            card(each, "wants to run").get_by_text("Denied on the terminal").wait_for()


@pytest.mark.deep
def test_a_late_answer_is_told_how_it_ended(queue: Queue, page: Page) -> None:
    """The answer of this page comes second: the page has not heard of the first yet."""
    with queue.put(HOST, 60) as ticket:
        one = card(page, HOST.fingerprint)
        one.wait_for()

        def first(route: Any) -> None:
            ticket.end("denied", "too late", "terminal")
            route.continue_()

        page.route("**/questions/*", first)
        press(one, "Allow once")
        one.get_by_text("Denied on the terminal: too late").wait_for()


def test_names_are_text(queue: Queue, page: Page) -> None:
    with queue.put(COMMAND, 60):
        one = card(page, "sh $'<b>bold</b>\\xe2\\x80\\xae.sh'")
        one.get_by_text("<i>claude</i> wants to run").wait_for()
        assert one.locator("b, i, u").count() == 0
        assert one.get_by_role("button", name="Always allow").count() == 0, "there is no rule"


@pytest.mark.deep
def test_the_keyboard_answers_the_card_that_has_it(queue: Queue, page: Page) -> None:
    with queue.put(HOST, 60), queue.put(COMMAND, 60):
        one, other = card(page, HOST.fingerprint), card(page, "wants to run")
        other.wait_for()
        for each in (one, other):
            each.locator("button:enabled").first.wait_for()
        page.keyboard.press("n")
        page.keyboard.press("Shift+Q")
        one.locator("button:focus").wait_for()
        page.keyboard.press("n")
        one.get_by_text("Denied on the page").wait_for()
        assert other.locator("button").count() > 0, "it still waits"
        other.get_by_label("Reason").fill("y")
        other.locator("button[data-answer=once]:enabled").wait_for()


@pytest.mark.deep
def test_who_gave_up_waiting_is_said(queue: Queue, page: Page) -> None:
    with queue.put(HOST, 60):
        card(page, HOST.fingerprint).wait_for()
    card(page, HOST.fingerprint).get_by_text("The command no longer waits").wait_for()
    press(card(page, HOST.fingerprint), "Allow once")
    card(page, HOST.fingerprint).get_by_text("Allowed on the page").wait_for()
    with queue.put(HOST, 0) as ticket:
        decision = ticket.look()
    assert decision is not None
    assert decision.state == "allowed"


@pytest.mark.deep
def test_later_hides_it_until_the_next(queue: Queue, page: Page) -> None:
    panel = page.locator("#decide")
    assert panel.is_hidden()
    with queue.put(HOST, 60):
        card(page, HOST.fingerprint).wait_for()
        press(panel, "Later")
        panel.wait_for(state="hidden")
        with queue.put(COMMAND, 60):
            card(page, "wants to run").wait_for()
            card(page, HOST.fingerprint).wait_for()


@pytest.mark.deep
def test_what_somebody_waits_for_comes_first(queue: Queue, page: Page) -> None:
    """And what is under the pointer then takes no answer before somebody can have read it."""
    with queue.put(HOST, 60):
        card(page, HOST.fingerprint).wait_for()
    queued = card(page, HOST.fingerprint)
    queued.get_by_text("The command no longer waits").wait_for()
    queued.locator("button:enabled").first.wait_for()
    page.evaluate(MOVED)
    with queue.put(COMMAND, 60):
        one = card(page, "wants to run")
        one.wait_for()
        assert page.locator(".ask .what").first.inner_text() == one.locator(".what").inner_text()
        assert page.evaluate("window.moved") == 2, "it has just moved"
        queued.locator("button:enabled").first.wait_for()
        press(one, "Deny")
        one.get_by_text("Denied on the page").wait_for()
        assert page.locator(".ask .what").last.inner_text() == one.locator(".what").inner_text()
        page.mouse.move(0, 0)
        one.wait_for(state="detached")  # though the keyboard was in it


@pytest.mark.deep
def test_what_was_put_off_does_not_come_again_by_a_reload(queue: Queue, page: Page) -> None:
    """Unless somebody waits for it."""
    with queue.put(HOST, 60):
        card(page, HOST.fingerprint).wait_for()
        press(page.locator("#decide"), "Later")
        page.reload()
        card(page, HOST.fingerprint).wait_for()
        press(page.locator("#decide"), "Later")
    page.reload()
    button = page.get_by_role("button", name="Questions 1")
    button.wait_for()
    assert page.locator("#decide").is_hidden() and button.get_attribute("aria-expanded") == "false"
    button.click()
    card(page, HOST.fingerprint).wait_for()


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (npm install --prefix dev/page)")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_nothing_grave_about_questions(queue: Queue, open_page: OpenPage, scheme: str, width: int) -> None:
    page = open_page(width, color_scheme=scheme)
    with queue.put(HOST, 60) as ticket, queue.put(COMMAND, 60):
        card(page, HOST.fingerprint).wait_for()
        attend(page)
        ticket.end("denied", "", "terminal")
        card(page, HOST.fingerprint).get_by_text("Denied on the terminal").wait_for()
        card(page, "wants to run").locator("button:enabled").first.wait_for()
        assert violations(page) == []


@pytest.mark.deep
def test_a_server_that_is_started_anew_shows_it_again(place: Place, queue: Queue, chromium: Browser) -> None:
    wrong: list[str] = []
    with chromium.new_context() as context, queue.put(HOST, 60) as ticket:
        page = context.new_page()
        port = str(free_port())
        with serving(place, "--port", port) as site:
            watch(page, site.url, wrong)
            page.goto(site.told["login"])
            one = card(page, HOST.fingerprint)
            one.locator("button:enabled").first.wait_for()
        press(one, "Deny")
        one.get_by_text(re.compile("does not answer")).wait_for()
        with serving(place, "--port", port):
            press(one, "Deny")
            one.get_by_text("Denied on the page").wait_for()
        assert ticket.look() is not None
    assert wrong == []


def test_allowed_for_an_hour_and_taken_back(queue: Queue, page: Page) -> None:
    asked = HOST._replace(fork="try-1")
    with queue.put(asked, 60) as ticket:
        one = card(page, HOST.fingerprint)
        hour = one.get_by_role("button", name="Allow for an hour")
        hour.wait_for()
        described = page.locator("#" + str(hour.get_attribute("aria-describedby")))
        assert described.inner_text() == "allow registry.example:443 in the fork try-1, for an hour"
        hour.click()
        one.get_by_text(re.compile("Allowed on the page, until ")).wait_for()
        assert ticket.look() is not None
    with queue.put(asked, 60) as ticket:
        assert ticket.look() is not None, "nobody is asked"
    page.mouse.move(0, 0)
    one.first.wait_for(state="detached")  # both questions may have been shown
    page.keyboard.press("Shift+Q")
    page.get_by_text("Answered lately").click()
    page.get_by_role("button", name=f"Take back {HOST.fingerprint}").click()
    page.get_by_role("button", name="Take back").wait_for(state="detached")
    with queue.put(asked, 0) as ticket:
        assert ticket.look() is None
