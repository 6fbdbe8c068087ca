"""A keeper's command process: it waits for a client, becomes its caller, runs the command, and ends.

It was forked from the keeper before the command. Each command has its own process in which no other command ran
before, so no caller's environment, directory, credential or cache is visible to another.

In order, and in doubt the client is refused, which then runs the command itself:
1. the client is a process of this user: SO_PEERCRED, and the same in what it sends (SCM_CREDENTIALS);
2. it is confined as this process is (``caller.py``). Its directory in /proc is opened before it is greeted,
   it sends afterwards, and later the directory is read again: so the process that was looked at had the pid all the
   time, and no other one has sent;
3. no file of the code has changed since the keeper has loaded it;
4. control group, limits, descriptors, directory, environment, locale and ignored signals are taken over.

The client ends as soon as the command has: its output is written, its changes are recorded, and it is in the journal.
Leftovers in the vault are removed afterwards: by this process, or, if it is killed, by a later command.
"""

from __future__ import annotations

import _socket
import _thread
import codecs
import gc
import io
import locale
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress

from mudroom.core.system.rights import descriptors_of, receive_exactly
from mudroom.ext.keeper.caller import (
    CallerSurroundings,
    Elsewhere,
    enter_groups,
    identity,
    ignored_signals,
    io_priority,
    surroundings,
    take_over,
)
from mudroom.ext.keeper.variables import at_start, may_share
from mudroom.sandbox.client.report import read_value
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import signal

    from mudroom.sandbox.client.client import Client
else:
    import _signal as signal  # signal itself makes enumerations of the numbers: 60 at each ``valid_signals``

Action = Callable[[], None]
Run = Callable[[Sequence[str], Mapping[bytes, bytes], "Client", Callable[[bytes, Action], None]], int]
Surround = Callable[[CallerSurroundings], None]
"""Give a command's launcher the surroundings of its caller. Raises as ``take_over``."""

GREETING, REFUSED, APART, UNLIKE, STARTED, ENDED = b"g", b"r", b"a", b"v", b"s", b"e"
"""Answers to the client (``src/native/keeper.c``). APART: this process may not have its control group or limits.
UNLIKE: it may not have its variables."""
RELAYED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""Signals that the client passes on."""
PATIENCE = 5
"""Seconds that a client may take to send its request."""
_DESCRIPTORS = 4
"""stdin, stdout, stderr, and the pipe from which signals are read."""
_LONGEST = 64 << 20
"""Bytes of a request. The kernel permits 6 MiB for words and variables (execve(2))."""
_CREDENTIALS = 12
"""Bytes in a ``struct ucred``."""
_IGNORED_BY_PYTHON = frozenset((signal.SIGPIPE, signal.SIGXFSZ))


class NotServed(Exception):
    """The client has to run the command itself."""

    answer = REFUSED


class OtherVariables(NotServed):
    answer = UNLIKE


class AdmittedCaller(NamedTuple):
    """A process that was examined, and its request."""

    directory: int
    """Descriptor of its directory in /proc."""
    descriptors: tuple[int, ...]
    argv: list[bytes]
    environ: dict[bytes, bytes]
    surroundings: CallerSurroundings


def admit(connection: _socket.socket, own: tuple[object, ...], is_current: Callable[[], bool]) -> AdmittedCaller:
    """Return the caller at the connection's other end. Raise NotServed, or OSError if it has gone."""
    connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
    pid, uid = _credentials(connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS))
    if uid != os.geteuid() or pid <= 0:
        raise NotServed
    directory = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    connection.settimeout(PATIENCE)
    # The client sends after this greeting, and its /proc directory is open already: see check 2 above.
    connection.sendall(GREETING)
    # runs while the client prepares its request
    found = identity(directory)
    is_equal = (found, io_priority(pid)) == (own, io_priority(0))
    may_serve = is_current()
    room = _socket.CMSG_SPACE(4 * _DESCRIPTORS) + _socket.CMSG_SPACE(_CREDENTIALS)
    head, ancillary, _flags, _address = connection.recvmsg(4, room, _socket.MSG_CMSG_CLOEXEC)
    descriptors = descriptors_of(ancillary)
    sender = next((_credentials(data) for _level, kind, data in ancillary if kind == _socket.SCM_CREDENTIALS), (0, 0))
    if not may_serve or sender != (pid, uid) or len(descriptors) != _DESCRIPTORS or len(head) != 4:
        raise NotServed
    length = int.from_bytes(head, "little")
    if length > _LONGEST:
        raise NotServed
    argv, environ = read_value(receive_exactly(connection, length))
    connection.settimeout(None)
    variables, own_variables = at_start(environ), at_start(os.environb)
    if variables != own_variables and (own_variables or not may_share(variables)):
        raise OtherVariables
    around = surroundings(pid)
    if not is_equal:  # as a service with UMask= or Nice= differs from a terminal: each has a keeper of its own
        raise Elsewhere if found is not None and around.groups != surroundings(os.getpid()).groups else NotServed
    return AdmittedCaller(directory, tuple(descriptors), list(argv), environ, around)


def _credentials(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[:4], sys.byteorder), int.from_bytes(data[4:8], sys.byteorder)


def become(caller: AdmittedCaller) -> None:
    """Take over the caller's state that a command sees. Raise NotServed or OSError if that is not possible."""
    os.setsid()
    for number, descriptor in enumerate(caller.descriptors[:3]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    directory = os.open("cwd", os.O_PATH | os.O_CLOEXEC, dir_fd=caller.directory)
    os.fchdir(directory)
    os.close(directory)
    for number in (ignored_signals(caller.directory) & signal.valid_signals()) - _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_IGN)
    os.close(caller.directory)
    before = dict(os.environb)
    os.environb.clear()
    try:
        os.environb.update(caller.environ)
    except ValueError as error:  # a name that cannot be set, e.g. an empty one
        raise NotServed from error
    time.tzset()
    is_strict = _become_localized()
    sys.argv = [os.fsdecode(word) for word in caller.argv]
    given = {} if sys.flags.ignore_environment else caller.environ
    if given.get(b"PYTHONPATH") and not at_start(before):
        sys.path[:0] = os.fsdecode(given[b"PYTHONPATH"]).split(":")
    sys.dont_write_bytecode = sys.dont_write_bytecode or _is_set(given, b"PYTHONDONTWRITEBYTECODE")
    encoding, _colon, errors = os.fsdecode(given.get(b"PYTHONIOENCODING", b"")).partition(":")
    errors = errors or ("strict" if encoding or is_strict else "surrogateescape")
    try:
        encoding = codecs.lookup(encoding or "utf-8").name
        codecs.lookup_error(errors)
    except LookupError as error:
        raise NotServed from error  # an interpreter does not start
    is_buffered = not _is_set(given, b"PYTHONUNBUFFERED")
    sys.stdin = _stream(0, encoding, errors, is_buffered)
    sys.stdout = _stream(1, encoding, errors, is_buffered)
    sys.stderr = _stream(2, encoding, "backslashreplace", is_buffered)


def _is_set(environ: Mapping[bytes, bytes], name: bytes) -> bool:
    """Return whether a variable switches on (_Py_get_env_flag in Python/preconfig.c)."""
    value = environ.get(name, b"")
    return bool(value) and not (value.isdigit() and int(value) == 0)


def _become_localized() -> bool:
    """Take over the locale of the environment as an interpreter does at its start (PEP 538, PEP 540; preconfig.c and
    initconfig.c in CPython). Return whether undecodable bytes are an error in its streams. Raise NotServed if its
    encoding is another one: it is that of all paths and words."""
    given = {} if sys.flags.ignore_environment else os.environb
    locale.setlocale(locale.LC_CTYPE, "C")
    try:
        name = locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:
        name = "C"  # that locale is not installed
    if name == "C" and not os.environb.get(b"LC_ALL") and given.get(b"PYTHONCOERCECLOCALE") != b"0":
        for target in _COERCED:
            try:
                name = locale.setlocale(locale.LC_CTYPE, target)
            except locale.Error:
                continue
            os.environb[b"LC_CTYPE"] = target.encode()
            break
    is_utf8 = name in ("C", "POSIX") or locale.nl_langinfo(locale.CODESET).upper() in ("UTF-8", "UTF8")
    if not is_utf8 or given.get(b"PYTHONUTF8") == b"0" or sys.getfilesystemencoding() != "utf-8":
        raise NotServed
    return name not in ("C", "POSIX", *_COERCED) and given.get(b"PYTHONUTF8") != b"1"


_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
"""Locales to which that of C is coerced, in order (PEP 538)."""


def _stream(descriptor: int, encoding: str, errors: str, is_buffered: bool) -> io.TextIOWrapper:
    """Return a stream as the interpreter makes it at its start (create_stdio in Python/pylifecycle.c)."""
    raw = io.FileIO(descriptor, "rb" if descriptor == 0 else "wb", closefd=False)
    at_line = is_buffered and (descriptor == 2 or raw.isatty())
    buffered = io.BufferedReader(raw) if descriptor == 0 else io.BufferedWriter(raw) if is_buffered else raw
    return io.TextIOWrapper(buffered, encoding, errors, "\n", at_line, write_through=not is_buffered)


def relay_signals(reader: int) -> None:
    """Start a thread that sends this process the signals that the client receives. Raise RuntimeError if no thread can
    be started."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # for the thread, which inherits it
    try:
        _thread.start_new_thread(_relay, (reader,))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _relay(reader: int) -> None:
    os.set_blocking(reader, True)
    while numbers := os.read(reader, 64):
        for number in numbers:
            if number in RELAYED:
                os.kill(os.getpid(), number)
    # the client was killed; nohup(1) ignores hang-ups
    hung_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    os.kill(os.getpid(), signal.SIGHUP if hung_up else signal.SIGTERM)


def serve(
    connection: _socket.socket,
    own: tuple[object, ...],
    is_current: Callable[[], bool],
    run: Run,
    client: Client,
    surround: Surround,
    spared: Sequence[int] = (),
) -> list[Action] | None:
    """Run the command of the client at the other end. Return what is to be done when it has ended, or None if the
    client is refused. ``spared``: descriptors that stay open."""
    later: list[tuple[bytes, Action]] = []
    pid = os.getpid()
    try:
        before = surroundings(pid)
        caller = admit(connection, own, is_current)
        if caller.surroundings != before:
            take_over(caller.surroundings, pid)
            surround(caller.surroundings)
        become(caller)
        relay_signals(caller.descriptors[3])
    except Elsewhere:
        _answer(connection, APART)
        return None
    except NotServed as refusal:
        _answer(connection, refusal.answer)
        return None
    except (OSError, RuntimeError, ValueError, TypeError, EOFError):
        _answer(connection, REFUSED)
        return None
    gc.enable()
    if _answer(connection, STARTED):
        code = _code(run, client, lambda place, action: later.append((place, action)))
        _let_go({connection.fileno(), *spared}, [place for place, _action in later])
        if caller.surroundings.groups != before.groups:
            _leave(caller.surroundings.groups, before.groups)
        _answer(connection, ENDED + bytes([code & 0xFF]))
    return [action for _place, action in later]


def _let_go(spared: Set[int], places: Sequence[bytes]) -> None:
    """Release everything of the caller's, as the end of an in-process command would. The caller may then unmount a file
    system, or wait for an output to end; this process ends some milliseconds later. ``places``: directories of the
    keeper's own, below which files stay open."""
    for number in (signal.SIGHUP, signal.SIGTERM):  # ``_relay`` sends one of them when the client has gone
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    kept = tuple(place + b"/" for place in places)
    for name in os.listdir(b"/proc/self/fd"):
        with suppress(OSError):  # the descriptor used for the listing
            if int(name) not in spared and not os.readlink(b"/proc/self/fd/" + name).startswith(kept):
                os.close(int(name))
    for _number in range(3):
        os.open(os.devnull, os.O_RDWR)  # so that no later file gets a number to which output is written


def _leave(groups: str, own: str) -> None:
    """Return to the keeper's own control groups: the caller may remove its group when its command has ended, which is
    refused while this process is in it."""
    with suppress(Elsewhere):  # this process ends in some milliseconds, too
        enter_groups(os.getpid(), groups, own)


def _answer(connection: _socket.socket, word: bytes) -> bool:
    try:
        connection.sendall(word)
    except OSError:
        return False  # the client has gone
    return True


def _code(run: Run, client: Client, later: Callable[[bytes, Action], None]) -> int:
    """Run the command, flush its output, and return its exit code as an interpreter would."""
    code = 1
    try:
        code = run(sys.argv[1:], os.environb, client, later)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:  # noqa: BLE001 - as at the top of an interpreter
        sys.excepthook(*sys.exc_info())
    with suppress(OSError):  # the reader is gone; there is no place left to report to
        sys.stdout.flush()
        sys.stderr.flush()
    return code
