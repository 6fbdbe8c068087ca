"""What a page is told, and how soon: whatever other processes do in the queues of questions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mudroom.core.approval.approval import HostQuestion
from mudroom.ext.web.state import hub as module
from mudroom.ext.web.state.hub import Hub, Look, Message
from mudroom.vault.approvals.bell import listeners, ring
from mudroom.vault.approvals.queue import Queue

HOST = HostQuestion("registry.example", 443, "tls", "", "")
CHANGED = ("changed", {"project": "p", "what": "questions"})


class Vaults:
    """As many as there are directories, and a stamp for each that no question changes."""

    def __init__(self, root: Path) -> None:
        self.root, self.fails = root, False

    def queue(self, name: str) -> Queue:
        return Queue(os.fsencode(self.root / name))

    def __call__(self) -> Look:
        if self.fails:
            self.fails = False
            raise OSError("a vault is removed just now")
        found: dict[str, Any] = {}
        for path in sorted(self.root.iterdir()):
            queue = self.queue(path.name)
            found[path.name] = lambda queue=queue: queue.listen("page")
        return Look({}, found)


@pytest.fixture
def vaults(tmp_path: Path) -> Vaults:
    (tmp_path / "p").mkdir()
    return Vaults(tmp_path)


def heard(vaults: Vaults, then: Callable[[Hub, AsyncIterator[Message | None]], Awaitable[None]]) -> Hub:
    """Listen, and do something once what happens is told."""
    hub = Hub(vaults)

    async def run() -> None:
        told = hub.listen()
        assert await anext(told) == ("hello", {})
        async with asyncio.timeout(30):
            await then(hub, told)
        await told.aclose()  # type: ignore[attr-defined]

    with ThreadPoolExecutor(1) as thread:  # a browser of another test may have a loop in this one
        thread.submit(asyncio.run, run()).result()
    return hub


def put(queue: Queue, question: HostQuestion = HOST) -> str:
    with queue.put(question, 0) as ticket:
        return ticket.asked.name


def test_a_question_and_its_answer_are_told_without_a_look(vaults: Vaults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_INTERVAL", 3600.0)

    async def then(_hub: Hub, told: AsyncIterator[Message | None]) -> None:
        assert vaults.queue("p").listeners() == {"page"}
        name = put(vaults.queue("p"))
        assert await anext(told) == CHANGED
        vaults.queue("p").decide(name, allow=True, by="terminal")
        assert await anext(told) == CHANGED

    heard(vaults, then)
    assert vaults.queue("p").listeners() == frozenset(), "nobody listens any more"
    assert os.listdir(vaults.root / "p/approvals/bells") == []


def test_a_new_vault_is_noticed_and_one_that_goes_is_let_go(vaults: Vaults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.01)

    async def then(_hub: Hub, told: AsyncIterator[Message | None]) -> None:
        (vaults.root / "q").mkdir()
        while not vaults.queue("q").listeners():
            await asyncio.sleep(0.01)
        put(vaults.queue("q"))
        assert await anext(told) == ("changed", {"project": "q", "what": "questions"})
        (vaults.root / "p").rename(vaults.root.parent / "gone")
        gone = os.fsencode(vaults.root.parent / "gone/approvals/bells")
        while listeners(gone):
            await asyncio.sleep(0.01)

    heard(vaults, then)


def test_a_look_that_fails_is_done_again(vaults: Vaults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.01)
    vaults.fails = True

    async def then(_hub: Hub, told: AsyncIterator[Message | None]) -> None:
        while not vaults.queue("p").listeners():
            await asyncio.sleep(0.01)
        vaults.fails = True
        while vaults.fails:
            await asyncio.sleep(0.01)
        put(vaults.queue("p"))
        assert await anext(told) == CHANGED

    heard(vaults, then)


def test_two_listen_and_one_leaves(vaults: Vaults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.01)

    async def then(hub: Hub, told: AsyncIterator[Message | None]) -> None:
        other = hub.listen()
        assert await anext(other) == ("hello", {})
        await other.aclose()  # type: ignore[attr-defined]
        put(vaults.queue("p"))
        assert await anext(told) == CHANGED

    heard(vaults, then)


def test_who_listens_is_known_by_open_bells_alone(tmp_path: Path) -> None:
    queue = Queue(os.fsencode(tmp_path))
    assert queue.listeners() == frozenset()
    waiter, follower, page = queue.listen(), queue.listen("follow"), queue.listen("page")
    assert queue.listeners() == {"follow", "page"}
    bells = tmp_path / "approvals/bells"
    (dead,) = bells.glob("page.*")
    page.close()
    os.mkfifo(dead)  # of a process that was killed
    (bells / "page.link").symlink_to("/dev/null")
    assert queue.listeners() == {"follow"}
    assert not dead.exists()
    ring(os.fsencode(bells))
    waiter.clear()
    follower.clear()
    waiter.close()
    follower.close()
    assert queue.listeners() == frozenset()
