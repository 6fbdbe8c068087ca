"""The calls' arguments, on a fake library: behaviour that Windows alone would show, and Wine lacks."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from mudroom.ext.windows.sandbox.native import NativeFiles
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import FUNCTIONS, CallFailed, Library
from tiers import each


class Called:
    """Stands for every function of a DLL: ``answers`` by name, a number or a function of the arguments."""

    def __init__(self, name: str, answers: dict[str, Any], log: list[str]) -> None:
        self.name, self.answers, self.log = name, answers, log

    def __call__(self, *values: Any) -> Any:
        self.log.append(self.name)
        answer = self.answers.get(self.name, 1)
        return answer(*values) if callable(answer) else answer


class Dll:
    def __init__(self, answers: dict[str, Any], log: list[str]) -> None:
        self._answers, self._log = answers, log

    def __getattr__(self, name: str) -> Called:
        if self._answers.get(name, 1) is None:
            raise AttributeError(name)
        return Called(name, self._answers, self._log)


def library(log: list[str], last_error: int = 5, **answers: Any) -> Library:
    return Library(lambda _name: Dll(answers, log), lambda: last_error)


def reparse_point(_file: Any, _kind: Any, found: Any, _size: int) -> int:
    found._obj.FileAttributes = w.FILE_ATTRIBUTE_REPARSE_POINT
    return 1


@each("change", ["grant", "deny", "revoke", "protect", "unprotect", "label"])
def test_nothing_is_given_to_a_junction(change: str) -> None:
    log: list[str] = []
    files = NativeFiles(library(log, GetFileInformationByHandleEx=reparse_point))
    arguments = {
        "revoke": ("p", "S-1-1-0"),
        "unprotect": ("p", "S-1-1-0"),
        "protect": ("p", (), "S-1-1-0", 1),
        "label": ("p", 0x1000),
    }.get(change, ("p", "S-1-1-0", 1))
    with pytest.raises(CallFailed) as raised:
        getattr(files, change)(*arguments)
    assert raised.value.code == w.ERROR_CANT_RESOLVE_FILENAME
    assert "CloseHandle" in log and "SetSecurityInfo" not in log


def test_a_list_of_rights_that_inherits_nothing_is_made_anew() -> None:
    """No entry of the old list remains: an entry that denies does not apply to an AppContainer's SID."""
    entries: list[tuple[list[int], object]] = []
    kinds: list[int] = []

    def set_entries(count: int, rows: Any, old: Any, _new: Any) -> int:
        entries.append(([row.grfAccessPermissions for row in rows[:count]], getattr(old, "value", old)))
        assert all(row.grfAccessMode == w.ENUM["GRANT_ACCESS"] for row in rows[:count])
        return 0

    def set_security(_file: int, _type: int, kind: int, *_lists: Any) -> int:
        kinds.append(kind)
        return 0

    answers: dict[str, Any] = {"SetEntriesInAclW": set_entries, "SetSecurityInfo": set_security, "GetSecurityInfo": 0}
    log: list[str] = []
    answers |= {"GetFileInformationByHandleEx": lambda *_values: 1, "LocalFree": 0}
    fake = library(log, 5, **answers)
    fake.sid = lambda text: ctypes.create_string_buffer(8)  # type: ignore[method-assign]
    NativeFiles(fake).protect("p", ("S-1-5-18", "S-1-5-21-1"), "S-1-15-2-1", 0x1200A9)
    assert [rights for rights, _old in entries] == [[0x1F01FF] * 2, [0x1200A9]]
    assert entries[0][1] is None and "GetSecurityInfo" not in log
    assert kinds == [0x80000004]


@each(
    ("name", "answer", "code"),
    [
        ("CloseHandle", 0, 5),
        ("CreateJobObjectW", None, 127),
        ("CreateJobObjectW", 0, 5),
        ("CreateFileW", (1 << 64) - 1, 5),
        ("SetSecurityInfo", 87, 87),
        ("DeleteAppContainerProfile", ctypes.c_int32(0x800700B7 - (1 << 32)).value, 183),
        ("ResizePseudoConsole", ctypes.c_int32(0x80004001 - (1 << 32)).value, 0x80004001),
        ("ResumeThread", 0xFFFFFFFF, 5),
    ],
)
def test_every_way_of_failing_is_noticed(name: str, answer: Any, code: int) -> None:
    with pytest.raises(CallFailed) as raised:
        getattr(library([], 5, **{name: answer}), name)()
    assert (raised.value.function, raised.value.code) == (name, code)


def test_what_succeeds_is_handed_on() -> None:
    good = library([], CreateJobObjectW=420, ResumeThread=0, SetSecurityInfo=0, CreateFileW=8)
    assert [good.CreateJobObjectW(None, None), good.ResumeThread(1), good.CreateFileW()] == [420, 0, 8]
    assert good.SetSecurityInfo() == 0 and good.has("CloseHandle")
    assert not library([], CloseHandle=None).has("CloseHandle")


def test_every_function_is_declared() -> None:
    log: list[str] = []
    made = library(log)
    for name, (_dll, _kind, arguments) in FUNCTIONS.items():
        assert all(hasattr(one, "from_param") for one in arguments), name
        assert callable(getattr(made, name))
    with pytest.raises(AttributeError):
        _ = made.NoSuchFunction


def test_this_is_not_windows() -> None:
    with pytest.raises(OSError, match="not Windows"):
        Library()
