"""The Windows API by ctypes: every function is declared, every result is checked.

Importable on any machine; the libraries are opened when a ``Library`` is made, which only Windows can. Function names
are Microsoft's, so its documentation applies; the structures are in ``types.py``.

How a function reports failure is part of its declaration: BOOL (0, then GetLastError), CODE (an error number itself,
winerror.h), RESULT (a negative HRESULT), HANDLED (a null handle), FILE (INVALID_HANDLE_VALUE), COUNT (0xFFFFFFFF),
NOTHING.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, addressof, byref, c_char, c_size_t, c_void_p, c_wchar_p, sizeof

from mudroom.ext.windows.win32 import types as w
from mudroom.typing import Any

Luid = tuple[int, int]


class CallFailed(Exception):
    """``code`` is GetLastError's, or the lower half of a Win32 HRESULT."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function}: error {code}")
        self.function = function
        self.code = code


_P = c_void_p
BOOL, CODE, RESULT, HANDLED, FILE, COUNT, NOTHING = "bool", "code", "hresult", "handle", "file", "count", "nothing"
_INVALID = (1 << 64) - 1
"""INVALID_HANDLE_VALUE."""
_RESTYPES: dict[str, Any] = {
    BOOL: w.BOOL, CODE: w.DWORD, RESULT: w.HRESULT, HANDLED: w.HANDLE, FILE: w.HANDLE, COUNT: w.DWORD, NOTHING: None
}  # fmt: skip
_D, _DP, _S = w.DWORD, POINTER(w.DWORD), c_wchar_p

FUNCTIONS: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    # name: library, failure report, arguments
    "CloseHandle": ("kernel32", BOOL, (_P,)),
    "LocalFree": ("kernel32", NOTHING, (_P,)),
    "GetCurrentProcess": ("kernel32", HANDLED, ()),
    "CreateDirectoryW": ("kernel32", BOOL, (_S, _P)),
    "CreateFileW": ("kernel32", FILE, (_S, _D, _D, _P, _D, _D, _P)),
    "GetFileInformationByHandleEx": ("kernel32", BOOL, (_P, w.DWORD, _P, _D)),
    "SetHandleInformation": ("kernel32", BOOL, (_P, _D, _D)),
    "CreatePipe": ("kernel32", BOOL, (POINTER(_P), POINTER(_P), _P, _D)),
    "CreateJobObjectW": ("kernel32", HANDLED, (_P, _S)),
    "SetInformationJobObject": ("kernel32", BOOL, (_P, w.DWORD, _P, _D)),
    "QueryInformationJobObject": ("kernel32", BOOL, (_P, w.DWORD, _P, _D, _DP)),
    "IsProcessInJob": ("kernel32", BOOL, (_P, _P, POINTER(w.BOOL))),
    "TerminateJobObject": ("kernel32", BOOL, (_P, w.DWORD)),
    "CreateIoCompletionPort": ("kernel32", HANDLED, (_P, _P, c_size_t, _D)),
    "GetQueuedCompletionStatus": ("kernel32", BOOL, (_P, _DP, POINTER(c_size_t), POINTER(c_size_t), _D)),
    "InitializeProcThreadAttributeList": ("kernel32", BOOL, (_P, _D, _D, POINTER(c_size_t))),
    "UpdateProcThreadAttribute": ("kernel32", BOOL, (_P, _D, c_size_t, _P, c_size_t, _P, _P)),
    "DeleteProcThreadAttributeList": ("kernel32", NOTHING, (_P,)),
    "ResumeThread": ("kernel32", COUNT, (_P,)),
    "WaitForSingleObject": ("kernel32", COUNT, (_P, _D)),
    "GetExitCodeProcess": ("kernel32", BOOL, (_P, _DP)),
    "CreatePseudoConsole": ("kernel32", RESULT, (w.COORD, _P, _P, _D, POINTER(_P))),
    "ResizePseudoConsole": ("kernel32", RESULT, (_P, w.COORD)),
    "ClosePseudoConsole": ("kernel32", NOTHING, (_P,)),
    "LockFileEx": ("kernel32", BOOL, (_P, _D, _D, _D, _D, _P)),
    "UnlockFileEx": ("kernel32", BOOL, (_P, _D, _D, _D, _P)),
    "OpenProcess": ("kernel32", HANDLED, (_D, w.BOOL, _D)),
    "GetProcessTimes": ("kernel32", BOOL, (_P, _P, _P, _P, _P)),
    "OpenThread": ("kernel32", HANDLED, (_D, w.BOOL, _D)),
    "CancelSynchronousIo": ("kernel32", BOOL, (_P,)),
    "NtSuspendProcess": ("ntdll", CODE, (_P,)),
    "NtResumeProcess": ("ntdll", CODE, (_P,)),
    "NtQuerySystemInformation": ("ntdll", CODE, (_D, _P, _D, _DP)),
    "TerminateProcess": ("kernel32", BOOL, (_P, _D)),
    "ReadFile": ("kernel32", BOOL, (_P, _P, _D, _DP, _P)),
    "WriteFile": ("kernel32", BOOL, (_P, _P, _D, _DP, _P)),
    "GetConsoleMode": ("kernel32", BOOL, (_P, _DP)),
    "SetConsoleMode": ("kernel32", BOOL, (_P, _D)),
    "GetConsoleScreenBufferInfo": ("kernel32", BOOL, (_P, _P)),
    "FlushConsoleInputBuffer": ("kernel32", BOOL, (_P,)),
    "GetStdHandle": ("kernel32", FILE, (_D,)),
    "SetConsoleCtrlHandler": ("kernel32", BOOL, (_P, w.BOOL)),
    "GenerateConsoleCtrlEvent": ("kernel32", BOOL, (_D, _D)),
    "GetSystemWindowsDirectoryW": ("kernel32", BOOL, (_P, _D)),
    "AssignProcessToJobObject": ("kernel32", BOOL, (_P, _P)),
    "CreateEventW": ("kernel32", HANDLED, (_P, w.BOOL, w.BOOL, _S)),
    "SetEvent": ("kernel32", BOOL, (_P,)),
    "WaitForMultipleObjects": ("kernel32", COUNT, (_D, _P, w.BOOL, _D)),
    "CreateNamedPipeW": ("kernel32", FILE, (_S, _D, _D, _D, _D, _D, _D, _P)),
    "GetNamedPipeHandleStateW": ("kernel32", BOOL, (_P, _DP, _DP, _DP, _DP, _P, _D)),
    "ConnectNamedPipe": ("kernel32", BOOL, (_P, _P)),
    "DisconnectNamedPipe": ("kernel32", BOOL, (_P,)),
    "GetNamedPipeClientProcessId": ("kernel32", BOOL, (_P, _DP)),
    "GetOverlappedResult": ("kernel32", BOOL, (_P, _P, _DP, w.BOOL)),
    "CancelIoEx": ("kernel32", BOOL, (_P, _P)),
    "OpenProcessToken": ("advapi32", BOOL, (_P, _D, POINTER(_P))),
    "CreateRestrictedToken": ("advapi32", BOOL, (_P, _D, _D, _P, _D, _P, _D, _P, POINTER(_P))),
    "GetTokenInformation": ("advapi32", BOOL, (_P, w.DWORD, _P, _D, _DP)),
    "SetTokenInformation": ("advapi32", BOOL, (_P, w.DWORD, _P, _D)),
    "ConvertStringSidToSidW": ("advapi32", BOOL, (_S, POINTER(_P))),
    "ConvertSidToStringSidW": ("advapi32", BOOL, (_P, POINTER(_P))),
    "GetLengthSid": ("advapi32", COUNT, (_P,)),
    "ConvertStringSecurityDescriptorToSecurityDescriptorW": ("advapi32", BOOL, (_S, _D, POINTER(_P), _DP)),
    "GetSecurityDescriptorDacl": ("advapi32", BOOL, (_P, POINTER(w.BOOL), POINTER(_P), POINTER(w.BOOL))),
    "GetSecurityDescriptorSacl": ("advapi32", BOOL, (_P, POINTER(w.BOOL), POINTER(_P), POINTER(w.BOOL))),
    "GetSecurityInfo": ("advapi32", CODE, (_P, w.DWORD, _D, _P, _P, POINTER(_P), _P, POINTER(_P))),
    "SetSecurityInfo": ("advapi32", CODE, (_P, w.DWORD, _D, _P, _P, _P, _P)),
    "SetEntriesInAclW": ("advapi32", CODE, (_D, _P, _P, POINTER(_P))),
    "CreateProcessAsUserW": ("advapi32", BOOL, (_P, _S, _P, _P, _P, w.BOOL, _D, _P, _S, _P, _P)),
    "CreateAppContainerProfile": ("userenv", RESULT, (_S, _S, _S, _P, _D, POINTER(_P))),
    "DeleteAppContainerProfile": ("userenv", RESULT, (_S,)),
    "ReadConsoleW": ("kernel32", BOOL, (_P, _P, _D, _DP, _P)),
    "WriteConsoleW": ("kernel32", BOOL, (_P, _P, _D, _DP, _P)),
    "PeekNamedPipe": ("kernel32", BOOL, (_P, _P, _D, _DP, _DP, _DP)),
    "GetExtendedTcpTable": ("iphlpapi", CODE, (_P, _DP, w.BOOL, _D, _D, _D)),
}

Function = Callable[..., int]


class Library:
    """The functions above, each bound when it is first called. ``call.Name(...)`` raises CallFailed; a function that
    this Windows lacks fails with ERROR_PROC_NOT_FOUND."""

    def __init__(self, load: Callable[[str], Any] | None = None, last_error: Callable[[], int] | None = None) -> None:
        """Raise OSError if this is not Windows."""
        if load is None and not hasattr(ctypes, "WinDLL"):
            raise OSError("this is not Windows")
        self._load = load or (lambda name: ctypes.WinDLL(name, use_last_error=True))  # type: ignore[attr-defined,unused-ignore]
        self._last_error = last_error or ctypes.get_last_error  # type: ignore[attr-defined,unused-ignore]
        self._libraries: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Function:
        if name not in FUNCTIONS:
            raise AttributeError(name)
        library, kind, arguments = FUNCTIONS[name]
        if library not in self._libraries:
            self._libraries[library] = self._load(library)
        try:
            bound = getattr(self._libraries[library], name)
        except AttributeError:
            raise CallFailed(name, w.ERROR_PROC_NOT_FOUND) from None
        bound.argtypes, bound.restype = arguments, _RESTYPES[kind]

        def call(*values: Any) -> int:
            return self._checked(name, kind, bound(*values))

        setattr(self, name, call)
        return call

    def _checked(self, name: str, kind: str, result: Any) -> int:
        number = int(result or 0)
        if kind in (BOOL, HANDLED) and not number:
            raise CallFailed(name, self._last_error())
        if kind == FILE and number == _INVALID:
            raise CallFailed(name, self._last_error())
        if kind == COUNT and number == 0xFFFFFFFF:
            raise CallFailed(name, self._last_error())
        if kind == CODE and number:
            raise CallFailed(name, number)
        if kind == RESULT and number < 0:
            facility = number >> 16 & 0x1FFF
            raise CallFailed(name, number & 0xFFFF if facility == 7 else number & 0xFFFFFFFF)  # FACILITY_WIN32
        return number

    def has(self, name: str) -> bool:
        """Return whether this Windows has a function and its library."""
        try:
            getattr(self, name)
        except (CallFailed, OSError):
            return False
        return True

    # shared by several callers: SIDs and token information

    def sid(self, text: str) -> Any:
        """Return a buffer that holds the SID."""
        pointer = _P()
        self.ConvertStringSidToSidW(text, byref(pointer))
        try:
            return ctypes.create_string_buffer(ctypes.string_at(pointer, self.GetLengthSid(pointer)))  # type: ignore[arg-type,unused-ignore]
        finally:
            self.LocalFree(pointer)

    def sid_text(self, pointer: int | None) -> str:
        text = _P()
        self.ConvertSidToStringSidW(pointer, byref(text))
        try:
            return ctypes.wstring_at(text)  # type: ignore[arg-type,unused-ignore]
        finally:
            self.LocalFree(text)

    def sids(self, texts: Sequence[str], attributes: int = 0) -> tuple[Any, list[Any]]:
        """Return an array of SID_AND_ATTRIBUTES, and the buffers that have to live as long as it does."""
        buffers = [self.sid(text) for text in texts]
        rows = [w.SID_AND_ATTRIBUTES(addressof(buffer), attributes) for buffer in buffers]
        return (w.SID_AND_ATTRIBUTES * len(rows))(*rows), buffers

    def token_information(self, token: int, kind: str) -> bytes:
        buffer, start, size = self._token_buffer(token, kind)
        data = ctypes.string_at(start, size)
        del buffer  # not before: it owns the memory at the address
        return data

    def token_sids(self, token: int, kind: str) -> list[tuple[str, int]]:
        """Return (SID, attributes) for each entry in a TOKEN_GROUPS."""
        buffer, start, size = self._token_buffer(token, kind)
        count = int.from_bytes(buffer[:4], "little") if size >= 8 else 0
        rows = (w.SID_AND_ATTRIBUTES * count).from_address(start + 8)  # TOKEN_GROUPS: a DWORD, then aligned
        sids = [(self.sid_text(row.Sid), int(row.Attributes)) for row in rows]
        del buffer
        return sids

    def token_sid(self, token: int, kind: str) -> tuple[str, int]:
        """Return the SID and attributes at a structure's start: TOKEN_USER, TOKEN_MANDATORY_LABEL,
        TOKEN_APPCONTAINER_INFORMATION. The SID is empty if there is none."""
        buffer, start, _size = self._token_buffer(token, kind)
        row = w.SID_AND_ATTRIBUTES.from_address(start)
        result = (self.sid_text(row.Sid) if row.Sid else "", int(row.Attributes))
        del buffer
        return result

    def _token_buffer(self, token: int, kind: str) -> tuple[Any, int, int]:
        size = w.DWORD()
        try:
            self.GetTokenInformation(token, w.ENUM[kind], None, 0, byref(size))
        except CallFailed as failed:
            if failed.code not in (w.ERROR_INSUFFICIENT_BUFFER, 24):  # ERROR_BAD_LENGTH
                raise
        buffer = (c_char * max(size.value, 16))()
        self.GetTokenInformation(token, w.ENUM[kind], buffer, sizeof(buffer), byref(size))
        return buffer, addressof(buffer), size.value

    def luids(self, token: int) -> tuple[Luid, ...]:
        data = self.token_information(token, "TokenPrivileges")
        count = int.from_bytes(data[:4], "little")
        rows = (w.LUID_AND_ATTRIBUTES * count).from_buffer_copy(data[4:])
        return tuple((row.Luid.LowPart, row.Luid.HighPart) for row in rows)
