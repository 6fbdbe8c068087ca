"""The real ``Calls``: each is a few functions from ``api.py``. Memory that they allocate is freed here."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from ctypes import addressof, byref, c_size_t, c_uint32, c_uint64, c_void_p, sizeof

from mudroom.ext.windows.sandbox.bridge import GateBridge
from mudroom.ext.windows.sandbox.calls import Accounting, BridgeCalls, Calls, Console, Creation, Process
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed, Library, Luid
from mudroom.typing import Any

_SE_CHANGE_NOTIFY = (23, 0)
"""SeChangeNotifyPrivilege (ntddk.h: SE_CHANGE_NOTIFY_PRIVILEGE): every user has it, to pass through directories without
the right to list them. DISABLE_MAX_PRIVILEGE keeps it too."""
_IS_TERMINATING = 0xC000010A
"""STATUS_PROCESS_IS_TERMINATING in ntstatus.h, which <windows.h> does not include."""
_FLAGS = w.CREATE_SUSPENDED | w.CREATE_UNICODE_ENVIRONMENT | w.EXTENDED_STARTUPINFO_PRESENT
_TOKEN = w.TOKEN_QUERY | w.TOKEN_DUPLICATE | w.TOKEN_ASSIGN_PRIMARY | w.TOKEN_ADJUST_DEFAULT


class NativeFiles:
    def __init__(self, library: Library) -> None:
        self._library = library

    def make_directory(self, path: str) -> None:
        try:
            self._library.CreateDirectoryW(path, None)
        except CallFailed as failed:
            if failed.code != w.ERROR_ALREADY_EXISTS:
                raise

    def grant(self, path: str, sid: str, rights: int) -> None:
        self._change_entry(path, sid, rights, "GRANT_ACCESS")

    def deny(self, path: str, sid: str, rights: int) -> None:
        self._change_entry(path, sid, rights, "DENY_ACCESS")

    def revoke(self, path: str, sid: str) -> None:
        """Remove all entries for this SID; every other entry stays as it is at that time."""
        self._change_entry(path, sid, 0, "REVOKE_ACCESS")

    def protect(self, path: str, owners: Sequence[str], sid: str, rights: int) -> None:
        """Restrict a path to ``owners``, with all rights, and ``sid`` with these rights; no entry is inherited from
        above."""
        # The list is new: an entry that denies does not apply to an AppContainer's own SID, so no other entry may
        # allow, not even for all packages.
        first, whole = c_void_p(), c_void_p()
        file = self._open_no_follow(path, w.READ_CONTROL | w.WRITE_DAC)
        try:
            rows, _kept = _entries(self._library, owners, w.FILE_ALL_ACCESS, "GRANT_ACCESS")
            self._library.SetEntriesInAclW(len(owners), rows, None, byref(first))
            row, _kept_too = _entries(self._library, [sid], rights, "GRANT_ACCESS")
            self._library.SetEntriesInAclW(1, row, first, byref(whole))
            kind = w.DACL_SECURITY_INFORMATION | w.PROTECTED_DACL_SECURITY_INFORMATION
            self._library.SetSecurityInfo(file, w.ENUM["SE_FILE_OBJECT"], kind, None, None, whole, None)
        finally:
            self._library.LocalFree(whole)
            self._library.LocalFree(first)
            self._library.CloseHandle(file)

    def unprotect(self, path: str, sid: str) -> None:
        """Let the path inherit again, beside its owners' entries, which grant no more than they have above."""
        self._change_entry(path, sid, 0, "REVOKE_ACCESS", w.UNPROTECTED_DACL_SECURITY_INFORMATION)

    def _change_entry(self, path: str, sid: str, rights: int, mode: str, protection: int = 0) -> None:
        old, new, descriptor = c_void_p(), c_void_p(), c_void_p()
        files, dacl = w.ENUM["SE_FILE_OBJECT"], w.DACL_SECURITY_INFORMATION
        file = self._open_no_follow(path, w.READ_CONTROL | w.WRITE_DAC)
        try:
            self._library.GetSecurityInfo(file, files, dacl, None, None, byref(old), None, byref(descriptor))
            rows, _kept = _entries(self._library, [sid], rights, mode)
            self._library.SetEntriesInAclW(1, rows, old, byref(new))
            self._library.SetSecurityInfo(file, files, dacl | protection, None, None, new, None)
        finally:
            self._library.LocalFree(new)
            self._library.LocalFree(descriptor)
            self._library.CloseHandle(file)

    def _open_no_follow(self, path: str, access: int) -> int:
        """Open a file or directory itself. Raise CallFailed for a junction or a symbolic link."""
        share = w.FILE_SHARE_READ | w.FILE_SHARE_WRITE | w.FILE_SHARE_DELETE
        flags = w.FILE_FLAG_BACKUP_SEMANTICS | w.FILE_FLAG_OPEN_REPARSE_POINT
        file = self._library.CreateFileW(path, access, share, None, w.OPEN_EXISTING, flags, None)
        info = w.FILE_ATTRIBUTE_TAG_INFO()
        try:
            kind = w.ENUM["FileAttributeTagInfo"]
            self._library.GetFileInformationByHandleEx(file, kind, byref(info), sizeof(info))
            # A command that empties its own directory could have replaced it by a link, and the next command would get
            # rights on the link's target.
            if info.FileAttributes & w.FILE_ATTRIBUTE_REPARSE_POINT:
                raise CallFailed("CreateFileW", w.ERROR_CANT_RESOLVE_FILENAME)
        except CallFailed:
            self._library.CloseHandle(file)
            raise
        return file

    def label(self, path: str, integrity: int) -> None:
        descriptor, sacl, present, defaulted = c_void_p(), c_void_p(), w.BOOL(), w.BOOL()
        text = f"S:(ML;OICI;NW;;;S-1-16-{integrity})"
        self._library.ConvertStringSecurityDescriptorToSecurityDescriptorW(text, 1, byref(descriptor), None)
        try:
            self._library.GetSecurityDescriptorSacl(descriptor, byref(present), byref(sacl), byref(defaulted))
            file = self._open_no_follow(path, w.READ_CONTROL | w.WRITE_OWNER)  # required for setting a label
            try:
                label = w.LABEL_SECURITY_INFORMATION
                self._library.SetSecurityInfo(file, w.ENUM["SE_FILE_OBJECT"], label, None, None, None, sacl)
            finally:
                self._library.CloseHandle(file)
        finally:
            self._library.LocalFree(descriptor)


class NativeTokens:
    def __init__(self, library: Library) -> None:
        self._library = library

    def create_profile(self, name: str, capabilities: Sequence[str]) -> str:
        rows, _kept = self._library.sids(capabilities, w.SE_GROUP_ENABLED)
        sid = c_void_p()
        self._library.CreateAppContainerProfile(name, name, "mudroom", rows, len(capabilities), byref(sid))
        try:
            return self._library.sid_text(sid.value)
        finally:
            self._library.LocalFree(sid)

    def delete_profile(self, name: str) -> None:
        self._library.DeleteAppContainerProfile(name)

    def own_token(self) -> int:
        # GetCurrentProcess is the pseudo-handle -1
        return self._open_token(ctypes.c_void_p(-1), _TOKEN)

    def process_token(self, process: int) -> int:
        return self._open_token(ctypes.c_void_p(process), w.TOKEN_QUERY)

    def _open_token(self, process: c_void_p, access: int) -> int:
        token = c_void_p()
        self._library.OpenProcessToken(process, access, byref(token))
        return token.value or 0

    def privileges(self, token: int) -> tuple[Luid, ...]:
        """Return all privileges except SeChangeNotifyPrivilege, which every user keeps."""
        return tuple(privilege for privilege in self._library.luids(token) if privilege != _SE_CHANGE_NOTIFY)

    def restrict(self, token: int, flags: int, privileges: Sequence[Luid], sids: Sequence[str]) -> int:
        rows, _kept = self._library.sids(sids)
        removed = (w.LUID_AND_ATTRIBUTES * len(privileges))(
            *(w.LUID_AND_ATTRIBUTES(w.LUID(low, high), 0) for low, high in privileges)
        )
        new = c_void_p()
        self._library.CreateRestrictedToken(
            token,
            flags,
            0,
            None,
            len(removed),
            removed if removed else None,
            len(rows),
            rows if rows else None,
            byref(new),
        )
        return new.value or 0

    def set_default_dacl(self, token: int, sids: Sequence[str]) -> None:
        rows, _kept = _entries(self._library, sids, w.GENERIC_ALL, "GRANT_ACCESS")
        for row in rows:
            row.grfInheritance = w.NO_INHERITANCE
        dacl = c_void_p()
        self._library.SetEntriesInAclW(len(sids), rows, None, byref(dacl))
        try:
            value = w.TOKEN_DEFAULT_DACL(dacl)
            self._library.SetTokenInformation(token, w.ENUM["TokenDefaultDacl"], byref(value), sizeof(value))
        finally:
            self._library.LocalFree(dacl)

    def set_integrity(self, token: int, level: int) -> None:
        sid = self._library.sid(f"S-1-16-{level}")
        label = w.TOKEN_MANDATORY_LABEL(w.SID_AND_ATTRIBUTES(addressof(sid), w.SE_GROUP_INTEGRITY))
        size = sizeof(label) + len(sid)
        self._library.SetTokenInformation(token, w.ENUM["TokenIntegrityLevel"], byref(label), size)

    def integrity(self, token: int) -> int:
        return int(self._library.token_sid(token, "TokenIntegrityLevel")[0].rpartition("-")[2] or 0)

    def restricting(self, token: int) -> tuple[str, ...]:
        return tuple(sid for sid, _attributes in self._library.token_sids(token, "TokenRestrictedSids"))

    def user(self, token: int) -> str:
        return self._library.token_sid(token, "TokenUser")[0]

    def logon(self, token: int) -> str:
        for sid, attributes in self._library.token_sids(token, "TokenGroups"):
            if attributes & w.SE_GROUP_LOGON_ID == w.SE_GROUP_LOGON_ID:
                return sid
        raise CallFailed("GetTokenInformation", w.ERROR_FILE_NOT_FOUND)

    def container(self, token: int) -> str:
        if not int.from_bytes(self._library.token_information(token, "TokenIsAppContainer")[:4], "little"):
            return ""
        return self._library.token_sid(token, "TokenAppContainerSid")[0]

    def capabilities(self, token: int) -> tuple[str, ...]:
        return tuple(sid for sid, _attributes in self._library.token_sids(token, "TokenCapabilities"))


class NativeJobs:
    def __init__(self, library: Library) -> None:
        self._library = library

    def create_job(self) -> int:
        return self._library.CreateJobObjectW(None, None)

    def set_limits(self, job: int, flags: int, processes: int, memory: int) -> None:
        limits = w.JOBOBJECT_EXTENDED_LIMIT_INFORMATION()
        limits.BasicLimitInformation.LimitFlags = flags
        limits.BasicLimitInformation.ActiveProcessLimit = processes
        limits.JobMemoryLimit = memory
        self._set(job, "JobObjectExtendedLimitInformation", limits)

    def limit_flags(self, job: int) -> int:
        limits = w.JOBOBJECT_EXTENDED_LIMIT_INFORMATION()
        self._query(job, "JobObjectExtendedLimitInformation", limits)
        return int(limits.BasicLimitInformation.LimitFlags)

    def set_cpu_rate(self, job: int, rate: int) -> None:
        flags = w.JOB_OBJECT_CPU_RATE_CONTROL_ENABLE | w.JOB_OBJECT_CPU_RATE_CONTROL_HARD_CAP
        control = w.JOBOBJECT_CPU_RATE_CONTROL_INFORMATION(ControlFlags=flags)
        control.CpuRate = rate
        self._set(job, "JobObjectCpuRateControlInformation", control)

    def set_ui(self, job: int, bits: int) -> None:
        self._set(job, "JobObjectBasicUIRestrictions", w.JOBOBJECT_BASIC_UI_RESTRICTIONS(bits))

    def _set(self, job: int, kind: str, value: Any) -> None:
        self._library.SetInformationJobObject(job, w.ENUM[kind], byref(value), sizeof(value))

    def _query(self, job: int, kind: str, value: Any) -> None:
        self._library.QueryInformationJobObject(job, w.ENUM[kind], byref(value), sizeof(value), None)

    def create_port(self, job: int) -> int:
        port = self._library.CreateIoCompletionPort(c_void_p(-1), None, 0, 1)  # INVALID_HANDLE_VALUE: no file
        try:
            self._set(
                job, "JobObjectAssociateCompletionPortInformation", w.JOBOBJECT_ASSOCIATE_COMPLETION_PORT(job, port)
            )
        except CallFailed:
            self._library.CloseHandle(port)
            raise
        return port

    def next_message(self, port: int, milliseconds: int) -> tuple[int, int] | None:
        """Return (JOB_OBJECT_MSG_*, process id), or None if no message arrives in this time."""
        message, key, pid = c_uint32(), c_size_t(), c_size_t()
        try:
            self._library.GetQueuedCompletionStatus(port, byref(message), byref(key), byref(pid), milliseconds)
        except CallFailed as failed:
            if failed.code == w.WAIT_TIMEOUT:
                return None
            raise
        return message.value, pid.value

    def accounting(self, job: int) -> Accounting:
        basic, extended = w.JOBOBJECT_BASIC_ACCOUNTING_INFORMATION(), w.JOBOBJECT_EXTENDED_LIMIT_INFORMATION()
        self._query(job, "JobObjectBasicAccountingInformation", basic)
        self._query(job, "JobObjectExtendedLimitInformation", extended)
        ticks = basic.TotalUserTime + basic.TotalKernelTime  # in 100 ns
        return Accounting(ticks / 1e7, basic.TotalProcesses, basic.ActiveProcesses, extended.PeakJobMemoryUsed)

    def is_in_job(self, process: int, job: int) -> bool:
        result = w.BOOL()
        self._library.IsProcessInJob(process, job, byref(result))
        return bool(result.value)

    def runs_in_job(self) -> bool:
        """Return whether this process is in any job."""
        result = w.BOOL()
        self._library.IsProcessInJob(c_void_p(-1), None, byref(result))
        return bool(result.value)

    def process_ids(self, job: int) -> tuple[int, ...]:
        """Return the ids of the processes in the job, with those in nested jobs."""
        room = 64
        while True:
            rows = (c_size_t * (room + 1))()  # JOBOBJECT_BASIC_PROCESS_ID_LIST: two DWORDs, then numbers
            try:
                self._query(job, "JobObjectBasicProcessIdList", rows)
            except CallFailed as failed:
                if failed.code != w.ERROR_MORE_DATA:
                    raise
                room *= 2
                continue
            listed = rows[0] >> 32
            return tuple(rows[1 : 1 + listed])

    def terminate_job(self, job: int, code: int) -> None:
        self._library.TerminateJobObject(job, code)


class NativeConsoles:
    def __init__(self, library: Library) -> None:
        self._library = library

    def create_console(self, columns: int, rows: int) -> Console:
        ends = [c_void_p() for _ in range(4)]
        self._library.CreatePipe(byref(ends[0]), byref(ends[1]), None, 0)
        console = c_void_p()
        try:
            self._library.CreatePipe(byref(ends[2]), byref(ends[3]), None, 0)
            self._library.CreatePseudoConsole(w.COORD(columns, rows), ends[0], ends[3], 0, byref(console))
        except CallFailed:
            for end in ends[1:3]:
                self._close_if(end)
            raise
        finally:  # the console has its own copies
            for end in (ends[0], ends[3]):
                self._close_if(end)
        return Console(console.value or 0, ends[1].value or 0, ends[2].value or 0)

    def _close_if(self, handle: c_void_p) -> None:
        if handle.value:
            self._library.CloseHandle(handle.value)

    def resize_console(self, console: int, columns: int, rows: int) -> None:
        self._library.ResizePseudoConsole(console, w.COORD(columns, rows))

    def close_console(self, console: int) -> None:
        self._library.ClosePseudoConsole(console)


class NativeProcesses:
    def __init__(self, library: Library) -> None:
        self._library = library

    def create_process(self, creation: Creation) -> Process:
        start = w.STARTUPINFOEXW()
        start.StartupInfo.cb = sizeof(start)
        # Also with a console: otherwise this process's own handles are inherited.
        start.StartupInfo.dwFlags = w.STARTF_USESTDHANDLES
        attributes, _kept = self._attributes(creation)
        if creation.stdio is not None:
            names = ("hStdInput", "hStdOutput", "hStdError")
            for name, handle in zip(names, creation.stdio, strict=True):
                self._library.SetHandleInformation(handle, w.HANDLE_FLAG_INHERIT, w.HANDLE_FLAG_INHERIT)
                setattr(start.StartupInfo, name, handle)
        size = c_size_t()
        try:
            self._library.InitializeProcThreadAttributeList(None, len(attributes), 0, byref(size))
        except CallFailed as failed:
            if failed.code != w.ERROR_INSUFFICIENT_BUFFER:
                raise
        room = ctypes.create_string_buffer(size.value)
        self._library.InitializeProcThreadAttributeList(room, len(attributes), 0, byref(size))
        try:
            for attribute, address, length in attributes:
                self._library.UpdateProcThreadAttribute(room, 0, attribute, address, length, None, None)
            start.lpAttributeList = addressof(room)
            return self._create(creation, start)
        finally:
            self._library.DeleteProcThreadAttributeList(room)
            for handle in creation.stdio or ():  # no other child may inherit them
                self._library.SetHandleInformation(handle, w.HANDLE_FLAG_INHERIT, 0)

    def _create(self, creation: Creation, start: w.STARTUPINFOEXW) -> Process:
        line = ctypes.create_unicode_buffer(creation.line)  # CreateProcessW writes into it
        block = ctypes.create_string_buffer(creation.environment.encode("utf-16-le", "surrogatepass"))
        information = w.PROCESS_INFORMATION()
        flags = _FLAGS | (0 if creation.console else w.CREATE_NO_WINDOW)
        inherits = int(creation.stdio is not None)
        self._library.CreateProcessAsUserW(
            creation.token, creation.program, line, None, None, inherits, flags, block, creation.cwd, byref(start),
            byref(information),
        )  # fmt: skip
        return Process(information.hProcess, information.hThread, information.dwProcessId)

    def _attributes(self, creation: Creation) -> tuple[list[tuple[int, int, int]], list[Any]]:
        """Return (attribute, address, size) rows, and the objects that have to live until the process is made."""
        kept: list[Any] = [(c_void_p * 1)(creation.job)]
        rows = [(w.PROC_THREAD_ATTRIBUTE_JOB_LIST, addressof(kept[0]), sizeof(kept[0]))]

        def add(attribute: int, value: Any) -> None:
            kept.append(value)
            rows.append((attribute, addressof(value), sizeof(value)))

        if creation.console:
            rows.append((w.PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, creation.console, sizeof(c_void_p)))
        elif creation.stdio is not None:
            different = list(dict.fromkeys(creation.stdio))  # a duplicate handle is an error
            add(w.PROC_THREAD_ATTRIBUTE_HANDLE_LIST, (c_void_p * len(different))(*different))
        if creation.container:
            sid = self._library.sid(creation.container)
            array, sids = self._library.sids(creation.capabilities, w.SE_GROUP_ENABLED)
            kept.extend([sid, array, *sids])
            pointer = ctypes.cast(array, ctypes.POINTER(w.SID_AND_ATTRIBUTES))
            security = w.SECURITY_CAPABILITIES(addressof(sid), pointer, len(creation.capabilities), 0)
            add(w.PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES, security)
        if creation.mitigations:
            add(w.PROC_THREAD_ATTRIBUTE_MITIGATION_POLICY, c_uint64(creation.mitigations))
        return rows, kept

    def resume(self, thread: int) -> None:
        self._library.ResumeThread(thread)

    def wait(self, process: int, milliseconds: int) -> bool:
        return self._library.WaitForSingleObject(process, milliseconds) == w.WAIT_OBJECT_0

    def exit_code(self, process: int) -> int:
        code = w.DWORD()
        self._library.GetExitCodeProcess(process, byref(code))
        return code.value

    def hold(self, pid: int) -> None:
        """Stop all threads in a process. Each call needs one ``release``. A process that has ended is ignored."""
        self._each(pid, self._library.NtSuspendProcess)

    def release(self, pid: int) -> None:
        self._each(pid, self._library.NtResumeProcess)

    def _each(self, pid: int, action: Callable[[int], int]) -> None:
        try:
            process = self._library.OpenProcess(w.PROCESS_SUSPEND_RESUME, 0, pid)
        except CallFailed as failed:
            if failed.code == w.ERROR_INVALID_PARAMETER:  # "OpenProcess": there is no such process
                return
            raise
        try:
            action(process)
        except CallFailed as failed:
            if failed.code != _IS_TERMINATING:
                raise
        finally:
            self._library.CloseHandle(process)


def _entries(library: Library, sids: Sequence[str], rights: int, mode: str) -> tuple[Any, list[Any]]:
    buffers = [library.sid(sid) for sid in sids]
    rows = [w.EXPLICIT_ACCESS_W(rights, w.ENUM[mode], w.SUB_CONTAINERS_AND_OBJECTS_INHERIT) for _buffer in buffers]
    for row, sid in zip(rows, buffers, strict=True):
        row.Trustee.TrusteeForm = w.ENUM["TRUSTEE_IS_SID"]
        row.Trustee.ptstrName = addressof(sid)
    return (w.EXPLICIT_ACCESS_W * len(rows))(*rows), buffers


def _bridge(library: Library, name: str, sid: str, admits: Callable[[int], bool]) -> BridgeCalls:
    return GateBridge(library, name, sid, admits)


def native(library: Library | None = None) -> Calls:
    """Return the real calls. Raise OSError if this is not Windows."""
    library = library or Library()
    return Calls(
        NativeFiles(library), NativeTokens(library), NativeJobs(library), NativeConsoles(library),
        NativeProcesses(library), library.CloseHandle, functools.partial(_bridge, library),
    )  # fmt: skip
