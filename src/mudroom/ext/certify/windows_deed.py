"""Deeds for Windows alone, for rows whose attack is no POSIX call. Their text follows ``deed.py``'s in the program that
a sandbox runs, and they use its rules and names.

Rules of this file:
1. A call that reports a failure raises OSError: ``PermissionError`` for the error numbers by which Windows refuses a
   right (``_REFUSED``), else with the number as it is, which no row expects.
2. A service is tried by the first call that each client makes: nothing is started, scheduled or shown.
3. The calls are looked up by name in ``_library``: the tests' stand-in gives its own.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mudroom.ext.certify.deed import Place
    from mudroom.typing import Any
if __name__ == "mudroom.ext.certify.windows_deed":  # not in a sandbox, where deed.py's text precedes this
    from mudroom.ext.certify.deed import DEEDS, GATE, LEFT, PATIENCE, put

_REFUSED = (5, 1300, 1314, 0x80070005, 0x80041003)
"""ERROR_ACCESS_DENIED, ERROR_NOT_ALL_ASSIGNED, ERROR_PRIVILEGE_NOT_HELD ("System Error Codes"); E_ACCESSDENIED,
WBEM_E_ACCESS_DENIED ("WMI Error Constants")."""
_ENDED = "import os, sys, time; stream = open(sys.argv[1], 'w'); stream.write(str(os.getpid())); stream.flush()"


def _library(name: str) -> "Any":
    import ctypes

    return ctypes.WinDLL(name, use_last_error=True)  # type: ignore[attr-defined,unused-ignore]


def _last_error() -> int:
    import ctypes

    return int(ctypes.get_last_error())  # type: ignore[attr-defined,unused-ignore]


def _fail(number: int) -> "OSError":
    number &= 0xFFFFFFFF
    return PermissionError(13, "refused") if number in _REFUSED else OSError(number, "an error of Windows")


def _handle(value: "Any") -> "Any":
    """Return a handle. Raise OSError for INVALID_HANDLE_VALUE and NULL."""
    import ctypes

    number = ctypes.c_void_p(value).value
    if number in (None, ctypes.c_void_p(-1).value):
        raise _fail(_last_error())
    return ctypes.c_void_p(number)


def _done(result: "Any") -> None:
    """Raise OSError if a call that returns a BOOL returned FALSE."""
    if not result:
        raise _fail(_last_error())


# --- files ---


def junction(place: "Place") -> None:
    """Replace a directory in the copy by a junction, and write through it. FSCTL_SET_REPARSE_POINT with
    IO_REPARSE_TAG_MOUNT_POINT ("REPARSE_DATA_BUFFER", [MS-FSCC] 2.1.2.5): it needs no privilege."""
    import os

    os.mkdir("junction")
    join_directory("junction", place.outside)
    put("junction/target", place)


def join_directory(path: str, target: str) -> None:
    """Make an empty directory a junction."""
    import ctypes
    import os
    import struct

    target = os.path.abspath(target).replace("/", "\\")
    inner, shown = ("\\??\\" + target).encode("utf-16-le"), target.encode("utf-16-le")
    names = struct.pack("<HHHH", 0, len(inner), len(inner) + 2, len(shown)) + inner + b"\0\0" + shown + b"\0\0"
    data = struct.pack("<IHH", 0xA0000003, len(names), 0) + names
    kernel = _library("kernel32")
    kernel.CreateFileW.restype = ctypes.c_void_p
    # GENERIC_WRITE; OPEN_EXISTING; FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT
    file = _handle(kernel.CreateFileW(path, 0x40000000, 7, None, 3, 0x02200000, None))
    try:
        done = ctypes.c_ulong()
        _done(kernel.DeviceIoControl(file, 0x000900A4, data, len(data), None, 0, ctypes.byref(done), None))
    finally:
        kernel.CloseHandle(file)


def symbolic_link(place: "Place") -> None:
    """Replace a directory in the copy by a symbolic link, and write through it. "CreateSymbolicLink": without developer
    mode it needs a privilege."""
    import os

    os.mkdir("linked")
    os.rename("linked", "linked-away")
    try:
        os.symlink(place.outside, "linked", target_is_directory=True)
    except OSError as error:
        raise OSError(getattr(error, "winerror", None) or error.errno, "no link") from None
    put("linked/target", place)


def stream(place: "Place") -> None:
    """Write an alternate data stream: "File Streams", NAME:STREAM."""
    put(f"{place.outside}/target:mark", place)


def share(_place: "Place") -> str:
    """Open a pipe on this machine's own server by its network name. Every user may, whereas drive shares are for
    administrators: "[MS-SRVS]", \\\\server\\pipe\\srvsvc."""
    import os

    os.close(os.open("\\\\localhost\\pipe\\srvsvc", os.O_RDWR))
    return "opened"


# --- rights ---


def handles(place: "Any") -> None:
    """Write to a mudroom handle that a command may inherit: its number is the same in both."""
    import ctypes

    data, written = place.mark.encode(), ctypes.c_ulong()
    kernel = _library("kernel32")
    if not kernel.WriteFile(ctypes.c_void_p(place.handle), data, len(data), ctypes.byref(written), None):
        number = _last_error()
        # ERROR_INVALID_FUNCTION, ERROR_INVALID_HANDLE: the number is another object's there, or none's
        raise PermissionError(13, "refused") if number in (1, 6) else _fail(number)


def _own_token(access: int) -> "Any":
    import ctypes

    token = ctypes.c_void_p()
    _done(_library("advapi32").OpenProcessToken(ctypes.c_void_p(-1), access, ctypes.byref(token)))
    return token


_PRIVILEGES = ("SeIncreaseWorkingSetPrivilege", "SeShutdownPrivilege")
"""Users have the first on each Windows, the second on each that is no server ("Privilege Constants")."""


def privileges(_place: "Place") -> str:
    """Enable a privilege that each user has."""
    token = _own_token(0x28)  # TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY
    for name in _PRIVILEGES:
        number = _enable(token, name)
        if not number:
            return "enabled"
    raise _fail(number)


def _enable(token: "Any", name: str) -> int:
    """Enable a privilege and return the error number. "AdjustTokenPrivileges": it succeeds with ERROR_NOT_ALL_ASSIGNED
    if the token has no such privilege."""
    import ctypes

    luid, advapi = ctypes.c_uint64(), _library("advapi32")
    _done(advapi.LookupPrivilegeValueW(None, name, ctypes.byref(luid)))
    wanted = (ctypes.c_uint32 * 4)(1, luid.value & 0xFFFFFFFF, luid.value >> 32, 2)  # SE_PRIVILEGE_ENABLED
    _done(advapi.AdjustTokenPrivileges(token, 0, ctypes.byref(wanted), 0, None, None))
    return _last_error()


def integrity(_place: "Place") -> str:
    """Set this process's token to medium integrity, which a user's programs have: "SetTokenInformation",
    TokenIntegrityLevel. It cannot be raised without SeRelabelPrivilege or more."""
    import ctypes

    class Label(ctypes.Structure):
        _fields_ = (("sid", ctypes.c_void_p), ("attributes", ctypes.c_uint32))

    sid, advapi = ctypes.c_void_p(), _library("advapi32")
    token = _own_token(0x88)  # TOKEN_ADJUST_DEFAULT | TOKEN_QUERY
    _done(advapi.ConvertStringSidToSidW("S-1-16-8192", ctypes.byref(sid)))
    label = Label(sid, 0x20)  # SE_GROUP_INTEGRITY
    _done(advapi.SetTokenInformation(token, 25, ctypes.byref(label), ctypes.sizeof(label) + 12))
    return "raised"


def container(_place: "Place") -> str:
    """Return whether this process is in no container: TokenIsAppContainer in TOKEN_INFORMATION_CLASS."""
    import ctypes

    is_in, size = ctypes.c_uint32(), ctypes.c_uint32()
    token = _own_token(8)  # TOKEN_QUERY
    _done(_library("advapi32").GetTokenInformation(token, 29, ctypes.byref(is_in), 4, ctypes.byref(size)))
    if is_in.value:
        raise PermissionError(13, "in a container")
    return "in none"


def registry(place: "Any") -> None:
    """Make a key in the user's part of the registry."""
    import winreg

    key = winreg.CreateKey(winreg.HKEY_CURRENT_USER, place.key)  # type: ignore[attr-defined,unused-ignore]
    winreg.CloseKey(key)  # type: ignore[attr-defined,unused-ignore]


# --- services ---


def clipboard(_place: "Place") -> str:
    """Read the clipboard without revealing its content: "GetClipboardData", NULL if it is refused
    (JOB_OBJECT_UILIMIT_READCLIPBOARD in "JOBOBJECT_BASIC_UI_RESTRICTIONS")."""
    import ctypes

    user = _library("user32")
    user.GetClipboardData.restype = ctypes.c_void_p
    _done(user.OpenClipboard(None))
    try:
        kind = user.EnumClipboardFormats(0)
        _done(kind)
        _done(user.GetClipboardData(kind))
    finally:
        user.CloseClipboard()
    return "read"


def _guid(text: str) -> "Any":
    import ctypes

    value = ctypes.create_string_buffer(16)
    _hresult(_library("ole32").CLSIDFromString(text, value))
    return value


def _hresult(number: int) -> None:
    if number & 0x80000000:
        raise _fail(number)


_IN_PROCESS, _LOCAL_SERVER = 1, 4
"""CLSCTX for "CoCreateInstance"."""


def _made(kind: str, interface: str, context: int) -> "Any":
    """Return a COM object."""
    import ctypes

    ole, made = _library("ole32"), ctypes.c_void_p()
    _hresult(ole.CoInitializeEx(None, 0))
    _hresult(ole.CoCreateInstance(_guid(kind), None, context, _guid(interface), ctypes.byref(made)))
    return made


def _method(made: "Any", number: int, *kinds: "Any") -> "Any":
    """Return an object's method by its place in the interface's table; the first three are IUnknown's."""
    import ctypes

    table = ctypes.cast(made, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))
    kind = ctypes.WINFUNCTYPE(ctypes.c_long, ctypes.c_void_p, *kinds)  # type: ignore[attr-defined,unused-ignore]
    return kind(table[0][number])


def wmi(_place: "Place") -> str:
    """Connect to WMI, which starts processes: IWbemLocator::ConnectServer in wbemcli.h, its fourth method."""
    import ctypes

    pointer = ctypes.c_void_p
    made = _made("{4590f811-1d3a-11d0-891f-00aa004b2e24}", "{dc12a687-737f-11cf-884d-00aa004b2e24}", _IN_PROCESS)
    connect = _method(made, 3, pointer, pointer, pointer, pointer, ctypes.c_long, pointer, pointer, pointer)
    automation, services = _library("oleaut32"), pointer()
    automation.SysAllocString.restype = pointer
    space = automation.SysAllocString("ROOT\\CIMV2")
    _hresult(connect(made, space, None, None, None, 0, None, None, ctypes.byref(services)))
    return "connected"


def tasks(_place: "Place") -> str:
    """Connect to the task scheduler: ITaskService::Connect in taskschd.h, its eleventh method with IDispatch's."""
    import ctypes

    class Variant(ctypes.Structure):  # VT_EMPTY
        _fields_ = (("kind", ctypes.c_uint64), ("value", ctypes.c_void_p * 2))

    made = _made("{0f87369f-a4e5-4cfc-bd3e-73e6154572dd}", "{2faba4c7-4da9-4013-9697-20cc3fd40f85}", _IN_PROCESS)
    _hresult(_method(made, 10, Variant, Variant, Variant, Variant)(made, Variant(), Variant(), Variant(), Variant()))
    return "connected"


def com(_place: "Place") -> str:
    """Start a COM server in another process, the one for background transfers: bits.h, IBackgroundCopyManager."""
    _made("{4991d34b-80a1-4291-83b6-3328366b9097}", "{5ce34c0d-0dc9-4c1f-897c-daa1b78cee7c}", _LOCAL_SERVER)
    return "started"


def local_pipe(_place: "Place") -> str:
    """Make a pipe where an AppContainer may: "CreateNamedPipe", \\\\.\\pipe\\LOCAL\\."""
    import os

    _make_pipe(f"LOCAL\\mudroom-{os.getpid()}")
    return "7"


def pipe_squat(place: "Any") -> str:
    """Make a pipe, in the namespace that all programs share, with a name that another program may be about to use."""
    _make_pipe(f"mudroom-{place.key[-24:]}")
    return "made"


def _make_pipe(name: str) -> None:
    import ctypes

    kernel = _library("kernel32")
    kernel.CreateNamedPipeW.restype = ctypes.c_void_p
    # PIPE_ACCESS_DUPLEX | FILE_FLAG_FIRST_PIPE_INSTANCE; PIPE_REJECT_REMOTE_CLIENTS
    pipe = _handle(kernel.CreateNamedPipeW("\\\\.\\pipe\\" + name, 0x00080003, 8, 1, 512, 512, 0, None))
    kernel.CloseHandle(pipe)


# --- the gate ---


def through_bridge(place: "Any") -> None:
    """Connect to this container's relay, and wait until the server behind the bridge answers."""
    import socket

    with socket.socket() as tcp:
        tcp.settimeout(PATIENCE)
        tcp.connect(("127.0.0.1", place.port))
        if not tcp.recv(1):
            raise ConnectionAbortedError(103, "the bridge has ended the connection")


def gate_itself(place: "Any") -> str:
    """Connect to the host's listener, to which the bridge leads."""
    import socket

    with socket.socket() as tcp:
        tcp.settimeout(PATIENCE)
        tcp.connect((GATE, place.gate))
    return "connected"


def open_pipe(place: "Any") -> str:
    """Open a pipe whose access list names another container, with just the rights that the list gives."""
    import ctypes

    kernel = _library("kernel32")
    kernel.CreateFileW.restype = ctypes.c_void_p
    # FILE_GENERIC_READ | FILE_GENERIC_WRITE without FILE_CREATE_PIPE_INSTANCE; OPEN_EXISTING
    kernel.CloseHandle(_handle(kernel.CreateFileW("\\\\.\\pipe\\" + place.pipe, 0x12019B, 0, None, 3, 0, None)))
    return "opened"


# --- processes and limits ---


def child(_place: "Place") -> str:
    """Start a process, as each command may."""
    import subprocess

    subprocess.Popen(_waiting(), stdin=subprocess.PIPE).communicate()
    return "started"


def breakaway(_place: "Place") -> str:
    """Start a process outside the job: "Process Creation Flags", CREATE_BREAKAWAY_FROM_JOB, refused by a job without
    JOB_OBJECT_LIMIT_BREAKAWAY_OK."""
    import ctypes
    import subprocess

    left = subprocess.Popen(_waiting(), stdin=subprocess.PIPE, creationflags=0x01000000)
    try:
        is_in = ctypes.c_int(1)
        _done(_library("kernel32").IsProcessInJob(_process(left), None, ctypes.byref(is_in)))
    finally:
        left.communicate()
    return "" if is_in.value else "outside"


def _process(started: "Any") -> "Any":
    import ctypes

    return ctypes.c_void_p(int(started._handle))


def _waiting() -> "list[str]":
    """Return the words for a program that ends with its input."""
    import sys

    return [getattr(sys, "_base_executable", "") or sys.executable, "-I", "-S", "-c", "input()"]


def nested(place: "Any") -> None:
    """Leave a process behind in a job within the command's job ("Nested Jobs"), and return when it is there. It holds a
    file open, so that the file cannot be removed."""
    import ctypes
    import os
    import subprocess
    import time

    words, kernel = _waiting(), _library("kernel32")
    path = f"{place.outside}/held"
    kernel.CreateJobObjectW.restype = ctypes.c_void_p
    job = _handle(kernel.CreateJobObjectW(None, None))
    null = subprocess.DEVNULL
    started = subprocess.Popen(
        [*words[:4], f"{_ENDED}; time.sleep({LEFT})", path], stdin=null, stdout=null, stderr=null
    )
    _done(kernel.AssignProcessToJobObject(job, _process(started)))
    end = time.monotonic() + LEFT
    while time.monotonic() < end and started.poll() is None:
        if os.path.exists(path) and os.path.getsize(path):
            return
        time.sleep(0.01)


MEMORY = 1 << 29
CHILDREN = 6


def memory(_place: "Place") -> str:
    """Commit more memory than a limited command may: "VirtualAlloc", which fails when a job's limit is reached."""
    try:
        return str(len(bytearray(MEMORY)) // MEMORY)
    except MemoryError:
        raise OSError(12, "no memory") from None


def processes(_place: "Place") -> str:
    """Start more processes than a limited command may: JOB_OBJECT_LIMIT_ACTIVE_PROCESS."""
    import subprocess

    children: list[Any] = []
    try:
        children.extend(subprocess.Popen(_waiting(), stdin=subprocess.PIPE) for _number in range(CHILDREN))
        return "" if any(one.poll() is not None for one in children) else "started"
    finally:
        for one in children:
            one.communicate()


DEEDS.update({
    deed.__name__: deed
    for deed in (
        junction, symbolic_link, stream, share, handles, privileges, integrity, container, registry, clipboard, wmi,
        tasks, com, local_pipe, pipe_squat, through_bridge, gate_itself, open_pipe, child, breakaway,
        nested, memory, processes,
    )
})  # fmt: skip
