"""The keeper's client: the first code that ``mudroom`` runs. It has a warm process run the command.

Rules of this file:
1. It imports only the interpreter's built-in modules, and no mudroom module: every millisecond here is added to
   every command.
2. It decides nothing about a command. ``VERBS`` says which verbs a keeper runs; every doubt leads to running the
   command in-process, which is always right.
3. Nothing is sent before the other end is known to belong to this user (``_connect``).
4. A command runs once. Until the keeper's process has acknowledged the start, the command has not started and may be
   run in-process; afterwards it never is.

The keeper's process takes descriptors 0 to 2, the words, the environment and the current directory, and checks that it
is confined and limited as this process is (``caller.py``).

A signal that would end mudroom is passed on, even if it arrives just before a wait: ``signal.set_wakeup_fd`` makes the
interpreter's handler write the number into a pipe that the keeper's process reads. If this process ends first, the pipe
closes, too, and the command ends as after a hang-up. A stop (SIGTSTP) stops this process alone: it concerns terminals,
and a command that runs here has none.

If mudroom was installed with its native client (``src/native``), that is the program ``mudroom``, and does the same
without an interpreter. It executes ``SCRIPT`` beside it for everything that it leaves to this file.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import marshal
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERBS = {
    "apply": (),
    "checkpoint": (),
    "diff": (),
    "discard": (),
    "exec": ("--b",),
    "fork": (),
    "hook": (),
    "log": ("--fol",),
    "ls": (),
    "policy": (),
    "ps": (),
    "recover": (),
    "redo": (),
    "resolve": (),
    "rollback": (),
    "run": (),
    "status": (),
    "undo": (),
}
"""Verbs that a keeper runs, with the prefixes of options that lead in-process: the process stays (--background) or
follows others (--follow)."""

ON_TERMINAL = frozenset(["ls", "status"])
"""Verbs that neither ask, page nor relay: a keeper runs them for a terminal whose foreground group contains this
process. Others need the terminal as their controlling terminal, which a process in another session cannot have."""

AT_START = (b"PYTHON", b"LOCPATH", b"LD_", b"GLIBC_", b"MALLOC_", b"OPENSSL_")
"""Prefixes of variables that an interpreter and its libraries read once. A keeper has those of the command that started
it, and is used only where they are equal. The locale is the caller's (``command.py``)."""

OF_THE_PROCESS = ("/fd/", "/proc/")
"""Parts of paths that mean the process that reads them: /dev/fd/63, from ``--card <(…)`` in bash."""

RELAYED = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM)
REFUSED, APART, STARTED, ENDED = b"r", b"a", b"s", b"e"
"""Answers from the keeper's process. APART: it may not have the caller's control group or limits."""
DIRECTORY = b"/keeper"
"""Below the state directory."""
PATIENCE, START_PATIENCE = 500_000, 5_000_000
"""Microseconds to wait for a keeper process, or for a place in its queue; and to hear that the command starts."""
_PEERCRED = 17  # SO_PEERCRED, unix(7); the module has no name for it
_PRIME = (1 << 127) - 1
SCRIPT = "mudroom-python"
"""The console script, where ``mudroom`` is the native client."""
OPTIONS = ("-E", "-I", "-s", "-Es", "-sE")
"""Interpreter options that may stand in ``SCRIPT``'s first line, as pipx writes them."""
PROTOCOL = b"mudroom-native-3"
"""The names, the request and the answers that a native client expects. Raise the number when one of them changes: in an
editable installation the native client is then older than the code, and must find no keeper."""
NO_KEEPER = "no keeper"
"""Run the command in-process; a keeper would be welcome."""
NO_KEEPER_APART = "no keeper with this control group and these limits"
"""The same: this user's keeper may not have this process's control group or limits."""
IN_PROCESS = "in-process"
"""Run the command in-process."""


class _Unusable(Exception):
    """The keeper cannot run this command."""


class _Apart(Exception):
    """The keeper may not have this process's control group or limits."""


def hand_over() -> str:
    """Have the keeper run this process's command, and end as the command ended. Return ``NO_KEEPER``,
    ``NO_KEEPER_APART`` or ``IN_PROCESS`` if the keeper cannot: the command has not run then."""
    argv, environ = sys.argv, posix.environ
    if not _is_for_keeper(argv[1:], environ):
        return IN_PROCESS
    try:
        connection = _connect(environ)
    except OSError:
        return NO_KEEPER  # no keeper, or a dead keeper's socket
    except _Unusable:
        return IN_PROCESS
    signals: list[int] = []
    try:
        _start(connection, argv, environ, signals)
    except (OSError, _Unusable, _Apart, ValueError) as error:
        connection.close()
        _take_back(signals)
        return NO_KEEPER_APART if isinstance(error, _Apart) else IN_PROCESS
    _wait(connection, signals)
    raise AssertionError


def _is_for_keeper(words: "Sequence[str]", environ: "Mapping[bytes, bytes]") -> bool:
    """Return whether a keeper may run these words, judging by their verb and the descriptors."""
    if not words or words[0] not in VERBS or environ.get(b"MUDROOM_KEEPER") == b"0":
        return False
    flags = sys.flags
    if flags.dev_mode or flags.debug or flags.verbose or flags.optimize or flags.no_site:
        return False
    if sys.warnoptions or sys._xoptions:
        return False
    if environ.get(b"LD_PRELOAD") or environ.get(b"LD_AUDIT"):
        return False  # such a library may read other variables
    if any(not path.startswith(b"/") for path in environ.get(b"PYTHONPATH", b"/").split(b":")):
        return False  # a keeper would load modules from the directory in which it was started
    if None in (sys.stdin, sys.stdout, sys.stderr):
        return False  # a descriptor is closed, and another file would get its number
    in_process = (*VERBS[words[0]], "-h", "--h")  # help ends an interpreter in its own way
    for word in words[1:]:
        if word == "--":
            break
        if word.startswith(in_process) or any(part in word for part in OF_THE_PROCESS):
            return False
    terminals = [descriptor for descriptor in (0, 1, 2) if posix.isatty(descriptor)]
    if not terminals:
        return True
    try:
        group = posix.getpgrp()
        return words[0] in ON_TERMINAL and all(posix.tcgetpgrp(descriptor) == group for descriptor in terminals)
    except OSError:
        return False


def directory_of(environ: "Mapping[bytes, bytes]") -> bytes:
    """Return the directory with the keepers' sockets; empty if the environment does not name an absolute path. Finds
    the state directory as ``policy/config.py`` does, but without the user's entry in /etc/passwd."""
    state = environ.get(b"MUDROOM_STATE") or b""
    if not state:
        xdg, home = environ.get(b"XDG_STATE_HOME", b""), environ.get(b"HOME", b"")
        if not home.startswith(b"/"):
            return b""
        state = (xdg if xdg.startswith(b"/") else home + b"/.local/state") + b"/mudroom"
    return state + DIRECTORY if state.startswith(b"/") else b""


def name_of(environ: "Mapping[bytes, bytes]", *, apart: bool = False) -> str:
    """Return the keeper's name, which depends on the machine, pid namespace, personality(2), interpreter and variables
    at start. The keeper finds other differences itself (``caller.py``), and takes over what it can. ``apart``: the name
    of a keeper for this process's control group and limits alone."""
    facts = [
        _content("/proc/self/cgroup") + b"\0" + _content("/proc/self/limits") if apart else b"",
        _content("/proc/self/personality"),
        posix.uname().nodename.encode("utf-8", "surrogateescape"),
        posix.readlink(b"/proc/self/ns/pid"),
        *(_facts_of_native() or _facts_of_interpreter()),
        *sorted(name + b"=" + value for name, value in variables_at_start(environ).items()),
    ]
    return "%032x" % (int.from_bytes(b"\0".join(facts), "little") % _PRIME)


def _facts_of_interpreter() -> "list[bytes]":
    # the locale of C sets utf8_mode, and it is the caller's; PYTHONUTF8 is in the name by itself
    flags = repr(sys.flags).replace(f"utf8_mode={sys.flags.utf8_mode}", "")
    words = (sys.executable, sys.version, flags, __file__)
    return [word.encode("utf-8", "surrogateescape") for word in words]


def _facts_of_native() -> "list[bytes]":
    """Return the facts that the native client knows about the interpreter it starts; empty if this interpreter was
    started in another way. The flags and the code follow from the script, the interpreter and the variables. The keeper
    checks that no other mudroom would be loaded (``code.py``)."""
    if not is_behind_native():
        return []
    words = sys.orig_argv[: sys.orig_argv.index(sys.argv[0])]
    script, interpreter, line = (
        text.encode("utf-8", "surrogateescape") for text in (sys.argv[0], words[0], "#!" + " ".join(words))
    )
    if _content(script)[: len(line) + 1] != line + b"\n":
        return []
    home = variables_given().get(b"HOME", b"")
    return [PROTOCOL, script, _stamp(script), line, _stamp(interpreter), b"HOME=" + home]


def is_behind_native() -> bool:
    """Return whether this interpreter runs ``SCRIPT`` as the kernel would: with at most the option in its first
    line."""
    script, words = sys.argv[0], sys.orig_argv
    is_script = script.startswith("/") and script.endswith("/" + SCRIPT)
    return is_script and (words[1:2] == [script] or (words[2:3] == [script] and words[1] in OPTIONS))


def _stamp(path: bytes) -> bytes:
    found = posix.stat(path)
    return b"%d %d %d %d %d" % (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def variables_at_start(environ: "Mapping[bytes, bytes]") -> "dict[bytes, bytes]":
    """Return the variables that an interpreter and its libraries read once."""
    given = variables_given() if is_behind_native() else environ
    return {name: value for name, value in given.items() if name.startswith(AT_START)}


def variables_given() -> "dict[bytes, bytes]":
    """Return the environment that this process was started with. In the C locale, an interpreter adds LC_CTYPE to it
    (PEP 538)."""
    given: dict[bytes, bytes] = {}
    for variable in _content("/proc/self/environ").split(b"\0"):
        name, equals, value = variable.partition(b"=")
        if equals:
            given.setdefault(name, value)
    return given


def _content(path: "str | bytes") -> bytes:
    descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        content = piece = posix.read(descriptor, 65536)
        while piece:  # an environment may be longer
            piece = posix.read(descriptor, 65536)
            content += piece
        return content
    finally:
        posix.close(descriptor)


def _connect(environ: "Mapping[bytes, bytes]") -> "_socket.socket":
    """Return a connection to this user's keeper. Raise OSError if there is none, _Unusable if its directory is not this
    user's alone."""
    place = directory_of(environ)
    if not place:
        raise _Unusable
    directory = posix.open(place, posix.O_PATH | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    user = posix.geteuid()
    try:
        found = posix.fstat(directory)
        if found.st_uid != user or found.st_mode & 0o077:
            raise _Unusable
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, _timeval(PATIENCE))
            try:
                connection.connect(f"/proc/self/fd/{directory}/{name_of(environ, apart=True)}")
            except OSError:  # the usual case: one keeper enters the group of each command
                connection.connect(f"/proc/self/fd/{directory}/{name_of(environ)}")
            # the user of the process that called listen(2)
            owner = connection.getsockopt(_socket.SOL_SOCKET, _PEERCRED, 12)[4:8]
            if int.from_bytes(owner, sys.byteorder) != user:
                raise _Unusable
        except BaseException:
            connection.close()
            raise
        return connection
    finally:
        posix.close(directory)


def _start(
    connection: "_socket.socket", argv: "Sequence[str]", environ: "Mapping[bytes, bytes]", signals: "list[int]"
) -> None:
    """Hand the command over and wait until it is about to start. Raise OSError, ValueError or _Unusable if it does
    not."""
    connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, _timeval(PATIENCE))
    if not connection.recv(1):  # a keeper process is there, and examines this one
        raise _Unusable
    connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, _timeval(START_PATIENCE))
    answer = None
    reader, writer = posix.pipe2(posix.O_CLOEXEC | posix.O_NONBLOCK)
    try:
        _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

        def keep(number: int, _frame: object) -> None:
            if answer is None and signals:  # the command has not started, and never will: the keeper may be stopped
                _signal.signal(number, _signal.SIG_DFL)
                posix.kill(posix.getpid(), number)
            signals.append(number)

        for number in RELAYED:
            if _signal.getsignal(number) != _signal.SIG_IGN:
                _signal.signal(number, keep)
        request = marshal.dumps((list(argv), dict(environ)))
        rights = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in (0, 1, 2, reader))
        size = len(request).to_bytes(4, "little")
        connection.sendmsg([size], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        connection.sendall(request)
    finally:
        posix.close(reader)
    try:
        answer = connection.recv(1)
    except BlockingIOError:
        # What the keeper's process sends from now on fails (unix_stream_sendmsg in net/unix/af_unix.c), and it starts
        # nothing then. What it has sent before is read.
        connection.shutdown(_socket.SHUT_RDWR)
        answer = connection.recv(1)
    connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, _timeval(0))
    if answer != STARTED:
        raise _Apart if answer == APART else _Unusable


def _timeval(microseconds: int) -> bytes:
    """Return a ``struct timeval`` (two longs) for socket(7)."""
    size = 8 if sys.maxsize > 1 << 32 else 4
    seconds, rest = divmod(microseconds, 1_000_000)
    return seconds.to_bytes(size, sys.byteorder) + rest.to_bytes(size, sys.byteorder)


def _take_back(signals: "Sequence[int]") -> None:
    """Handle signals as before, and send those that arrived meanwhile again."""
    if (writer := _signal.set_wakeup_fd(-1)) >= 0:
        posix.close(writer)
    for number in RELAYED:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            is_typed = number == _signal.SIGINT
            _signal.signal(number, _signal.default_int_handler if is_typed else _signal.SIG_DFL)
    for number in signals:
        posix.kill(posix.getpid(), number)


def _wait(connection: "_socket.socket", signals: "Sequence[int]") -> None:
    """Wait until the command ends, and end in the same way."""
    answer = b""
    try:
        while len(answer) < 2 and (more := connection.recv(2 - len(answer))):
            answer += more
    except OSError:
        answer = b""  # the keeper's process was killed
    if len(answer) == 2 and answer[:1] == ENDED:
        posix._exit(answer[1])
    if signals:  # the command was ended by a signal that would have ended this process
        _signal.signal(signals[-1], _signal.SIG_DFL)
        posix.kill(posix.getpid(), signals[-1])
    posix.write(2, b"mudroom: the process that ran the command was killed (the next mudroom collects its changes)\n")
    posix._exit(125)
