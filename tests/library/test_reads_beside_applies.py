"""File tools beside an apply, an undo or a redo of another room: every call finds the files where they are."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import mudroom
from conftest import Place
from mudroom.library.fork_handle import ForkHandle
from mudroom.vault.apply import landing, transaction
from mudroom.vault.store.fork import Fork
from rooms import open_room

CALLS: dict[str, Callable[[ForkHandle], object]] = {
    "read": lambda fork: fork.read("new/file"),
    "exists": lambda fork: fork.exists("new/file"),
    "list": lambda fork: [entry.name for entry in fork.list("new")],
    "glob": lambda fork: fork.glob("new/*"),
    "search": lambda fork: [match.text for match in fork.search("line", "new/**")],
    "edit": lambda fork: fork.edit("new/file", "line", "other"),
    "write": lambda fork: fork.write("new/more", "more"),
}
EXPECTED = {
    "read": "line\n",
    "exists": True,
    "list": ["file"],
    "glob": ["new/file"],
    "search": ["line"],
    "edit": 1,
    "write": None,
}
STEPS = {"in the slots": (transaction, "_finish"), "in the project": (landing, "keep_remainder")}


class Beside:
    """A call in a thread that begins before a step of the apply. The step waits until the call waits, or has ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
        self._call = call
        self.result: list[object] = []
        self._is_heard = threading.Event()
        self._thread = threading.Thread(target=self._run)
        wait = Fork.await_moving

        def heard(fork: Fork) -> None:
            if threading.current_thread() is self._thread:
                self._is_heard.set()
            wait(fork)

        monkeypatch.setattr(Fork, "await_moving", heard)

    def _run(self) -> None:
        try:
            self.result.append(self._call())
        except mudroom.MudroomError as error:
            self.result.append(error)
        finally:
            self._is_heard.set()

    def before(self, step: Callable[..., object]) -> Callable[..., object]:
        def stopped(*arguments: object, **named: object) -> object:
            if not self._thread.ident:
                self._thread.start()
                self._is_heard.wait()
            return step(*arguments, **named)

        return stopped

    def end(self) -> object:
        self._thread.join()
        return self.result[0]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("call", CALLS)
def test_a_file_tool_finds_files_that_another_room_is_applying(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: str, step: str
) -> None:
    with open_room(place) as room, open_room(place) as other:
        room.fork("a").write("new/file", "line\n")
        room.fork("a").flush()
        other.fork("a").exists("other" if step == "in the slots" else "new/file")  # its room has opened the fork
        beside = Beside(monkeypatch, lambda: CALLS[call](other.fork("a")))
        module, name = STEPS[step]
        monkeypatch.setattr(module, name, beside.before(getattr(module, name)))
        room.apply("a").check()
        assert beside.end() == EXPECTED[call]
        if call == "edit":
            assert other.fork("a").read("new/file") == "other\n"
            assert other.changes("a").paths == ["new/file"]
