"""The relay between two consoles, with pipes and threads of this system and a user's console that records the calls:
what Wine cannot show (keys, sizes of windows, modes) by its order, and every way out with its modes restored."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from windows_fake import Fake

from mudroom.ext.windows.sandbox import console_relay
from mudroom.ext.windows.sandbox.calls import Console
from mudroom.ext.windows.sandbox.console_relay import ConsoleRelay, PipeCalls
from mudroom.ext.windows.sandbox.run import ConfinedProcess, Undo
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed
from mudroom.ext.windows.win32.user_console import UserConsole, read_pipe, write_pipe

SECONDS = 30


class RecordedConsole:
    """Keys are put into ``keys``; a read waits for them, or for an interruption."""

    def __init__(self, failing: str = "") -> None:
        self.failing, self.calls = failing, list[str]()
        self.keys, self.shown = list[bytes](), b""
        self.window: tuple[int, int] | None = (100, 30)
        self._changed = threading.Condition()
        self._interrupted = False

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.failing:
            raise CallFailed(name, w.ERROR_INVALID_HANDLE)

    def enter_raw(self) -> None:
        self._call("enter_raw")

    def restore(self) -> None:
        self._call("restore")

    def size(self) -> tuple[int, int] | None:
        return self.window

    def press(self, keys: bytes) -> None:
        with self._changed:
            self.keys.append(keys)
            self._changed.notify_all()

    def read(self) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: self.keys or self._interrupted, SECONDS)
            self._interrupted = False
            return self.keys.pop(0) if self.keys else b""

    def write(self, data: bytes) -> None:
        self._call("write")
        self.shown += data

    def interrupt(self, _thread: int) -> None:
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()


class Command:
    """A command whose pseudo-console is two pipes of this system."""

    def __init__(self) -> None:
        self.keys, given = os.pipe()
        shown, self.output = os.pipe()
        self.console = Console(1, given, shown)
        self.sizes: list[tuple[int, int]] = []
        self.resized = threading.Event()

    @property
    def confined(self) -> Any:
        return SimpleNamespace(take_console=lambda: self.console, resize=self._resize)

    def _resize(self, columns: int, rows: int) -> None:
        self.sizes.append((columns, rows))
        self.resized.set()

    def end(self) -> None:
        os.close(self.output)


@pytest.fixture
def command() -> Iterator[Command]:
    made = Command()
    yield made
    os.close(made.keys)


PIPES = PipeCalls(lambda handle: os.read(handle, 1 << 16), os.write, os.close)


def test_output_keys_and_sizes(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_relay, "LOOK", 0.001)
    user = RecordedConsole()
    relay = ConsoleRelay(user, PIPES)
    relay.start(command)
    os.write(command.output, "grün ✓".encode())
    user.press(b"ls\r")
    user.press(b"\x03")  # Ctrl-C is a key, which raises its event in the command's console alone
    assert os.read(command.keys, 3) == b"ls\r" and os.read(command.keys, 1) == b"\x03"
    assert command.resized.wait(SECONDS)
    command.resized.clear()
    user.window = (80, 25)
    assert command.resized.wait(SECONDS)
    user.window = None  # the console has gone for a moment
    os.write(command.output, b" last words")
    command.end()
    relay.close()
    assert user.shown.decode() == "grün ✓ last words"  # all of it, before the modes are restored
    assert command.sizes == [(100, 30), (80, 25)]
    assert [call for call in user.calls if call != "write"] == ["enter_raw", "restore"]
    assert user.calls[-1] == "restore"
    for handle in (command.console.input, command.console.output):
        with pytest.raises(OSError):
            os.fstat(handle)
    relay.close()  # harmless
    assert not any(thread.name == "mudroom-console" for thread in threading.enumerate())


def test_a_console_without_raw_mode_starts_nothing(command: Command) -> None:
    user = RecordedConsole("enter_raw")
    relay = ConsoleRelay(user, PIPES)
    with pytest.raises(CallFailed, match="enter_raw"):
        relay.start(command)
    command.end()
    relay.close()
    assert user.calls == ["enter_raw"]  # which restores what it has changed


def test_a_console_that_goes_away_is_told_and_everything_is_closed(command: Command) -> None:
    user = RecordedConsole("write")
    relay = ConsoleRelay(user, PIPES)
    relay.start(command)
    os.write(command.output, b"x")
    command.end()
    with pytest.raises(CallFailed, match="write"):
        relay.close()
    assert user.calls[-1] == "restore"


def test_no_question_is_asked_on_the_console_of_a_command() -> None:
    relay = ConsoleRelay(RecordedConsole(), PIPES)
    assert relay.is_taken()
    with relay.suspended():
        relay.sign("a question")
    relay.close()  # nothing was started


def test_the_relay_closes_the_pipes_and_the_confinement_the_console() -> None:
    fake = Fake()
    confined = ConfinedProcess(fake.calls)
    console = fake.calls.consoles.create_console(80, 25)
    confined.console = console
    steps: list[tuple[str, Callable[[], object]]] = [
        ("the pseudo-console", lambda: fake.calls.consoles.close_console(console.handle)),
        ("its input", lambda: fake.calls.close(console.input)),
        ("its output", lambda: fake.calls.close(console.output)),
    ]
    confined._undo = [Undo(*step) for step in steps]
    assert confined.take_console() == console
    assert confined.close() == ()
    assert not any(call.startswith("close ") for call in fake.log), fake.log
    assert any("close_console" in call for call in fake.log)


class RecordedLibrary:
    def __init__(self) -> None:
        self.shown, self.modes, self.typed = b"", {10: 0x1F7, 11: 0x3}, ["a", "\ud83d", "\ude00"]
        self.log: list[str] = []

    def GetConsoleMode(self, handle: int, mode: Any) -> int:  # noqa: N802
        mode._obj.value = self.modes[handle]
        return 1

    def SetConsoleMode(self, handle: int, mode: int) -> int:  # noqa: N802
        self.modes[handle] = mode
        return 1

    def ReadConsoleW(self, _handle: int, buffer: Any, _most: int, count: Any, _control: None) -> int:  # noqa: N802
        if not self.typed:
            raise CallFailed("ReadConsoleW", 995)
        units = self.typed.pop(0).encode("utf-16-le", "surrogatepass")
        buffer[0], count._obj.value = int.from_bytes(units, "little"), 1
        return 1

    def WriteConsoleW(self, _handle: int, data: bytes, units: int, count: Any, _reserved: None) -> int:  # noqa: N802
        count._obj.value = min(units, 3)  # not all at once
        self.shown += data[: 2 * count._obj.value]
        return 1

    def ReadFile(self, _handle: int, _buffer: Any, _most: int, _count: Any, _at: None) -> int:  # noqa: N802
        raise CallFailed("ReadFile", w.ERROR_BROKEN_PIPE)

    def WriteFile(self, _handle: int, data: bytes, _size: int, count: Any, _at: None) -> int:  # noqa: N802
        count._obj.value = 2
        self.log.append(data[:2].decode())
        return 1


def test_the_user_s_console_has_utf_16_and_its_modes_come_back() -> None:
    library: Any = RecordedLibrary()
    user = UserConsole(library, 10, 11)
    user.enter_raw()
    assert library.modes == {10: 0x1F0 | 0x200, 11: 0x7}
    for data in ("ä€".encode()[:3], "ä€".encode()[3:], "😀x".encode()):
        user.write(data)
    assert library.shown.decode("utf-16-le") == "ä€😀x"
    # a pair of surrogates comes in two reads; the last one was interrupted
    assert [user.read() for _key in range(4)] == [b"a", b"", "😀".encode(), b""]
    user.restore()
    assert library.modes == {10: 0x1F7, 11: 0x3}
    user.restore()  # harmless
    assert read_pipe(library, 1) == b""
    write_pipe(library, 1, b"four")
    assert library.log == ["fo", "ur"]
