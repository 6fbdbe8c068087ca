"""Runs lines inside a sandbox and tells what each did.

    python3 -I -S -c '…; from classes.harness import main; main()' ORDER

ORDER is a file of JSON: the lines, the limits, the path of programs (``runner.py``).

A program whose lines have taken ``budget`` seconds together is left out from then on.

For each line: its index when it starts, or ``skipped``; then, if it had an effect, one line of JSON (``Observed``). The
project is compared after each line, and what differs is put back. Everything that a line has started is ended with it:
the harness is the reaper of its descendants (PR_SET_CHILD_SUBREAPER, prctl(2)).

A connection is noticed by the counters of the network namespace (/proc/net/snmp, RFC 2011 to 2013): the sandbox has
only a loopback interface, so every attempt raises one of them, whether anybody listens or not.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import stat
import sys
import threading
import time

from . import world

_SUBREAPER = 36
_OUTPUT = "/var/tmp/output"
_READ = 65536
_LARGEST = 4 * 1024 * 1024
_KEYS = b"q\n:q!\n\x04q\n"
"""Ends a pager, an editor, a shell."""
_IMPATIENT = 2
"""Lines of a program that may reach the limit; the later ones have a quarter of it."""
Stamp = tuple[int, ...]
Content = tuple[int, bytes]


class Harness:
    """Owned by the one thread that runs lines; ``Server`` has a thread of its own and shares nothing."""

    def __init__(self, path: str, limit: float) -> None:
        self._limit = limit
        self._slow: dict[str, int] = {}  # owner: the caller's thread
        self._environment = {
            "PATH": path, "HOME": world.HOME, "LANG": "C.UTF-8", "TERM": "xterm", "USER": "u", "LOGNAME": "u",
            "SHELL": "/bin/bash", "PYTHONDONTWRITEBYTECODE": "1", "GIT_CONFIG_NOSYSTEM": "1",
            "NO_UPDATE_NOTIFIER": "1", "npm_config_update_notifier": "false",  # npm heeds only its own
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }  # fmt: skip
        self._kept = _contents(world.TEMPLATE)
        self._home = _contents(world.HOME)
        self._stamps: dict[str, Stamp] = {}  # owner: the caller's thread
        self._home_stamps = _stamps(world.HOME)  # owner: the caller's thread
        self._restore({})
        self._commits = frozenset(world.git("rev-list", "--all").stdout.split())
        self._index = _index()
        self._litter = {place: set(os.listdir(place)) for place in ("/tmp", "/var/tmp", "/dev/shm")}

    def observe(self, line: str, program: str, terminal: bool) -> dict[str, object]:
        """Return the effects of one line. ``terminal``: it has a terminal, at which somebody types ``_KEYS``."""
        dialled = _dialled()
        end, output = self._run(line, program, terminal)
        seen: dict[str, object] = {}
        if _dialled() != dialled:
            seen["dialled"] = True
        if marks := os.listdir(world.MARKS):
            seen["ran"] = sorted({name.partition(".")[2] for name in marks})
            for name in marks:
                os.unlink(f"{world.MARKS}/{name}")
        if world.SECRET.encode() in output:
            seen["secret"] = True
        if self._stamps != _stamps(world.PROJECT):
            now = _contents(world.PROJECT)
            seen |= self._difference(now)
            self._restore(now)
        if self._home_stamps != _stamps(world.HOME):
            now = _contents(world.HOME)
            outside = [name for name, content in self._home.items() if now.get(name) != content]
            if outside:
                seen["outside"] = sorted(outside)
            _put_back(world.HOME, now, self._home)
            self._home_stamps = _stamps(world.HOME)
        self._sweep()
        if seen and end:
            seen["end"] = end
        return seen

    def _run(self, line: str, program: str, terminal: bool) -> tuple[str, bytes]:
        """Return how it ended, empty for an exit, and what it has printed."""
        slow = self._slow.get(program, 0)
        limit = self._limit / 4 if slow >= _IMPATIENT else self._limit
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        ours, theirs = os.openpty() if terminal else (-1, -1)
        given, written = ("/dev/null", _OUTPUT) if not terminal else (os.ttyname(theirs),) * 2
        actions = [
            # The leader of a session that opens a terminal gets it as its own (tty_ioctl(4)).
            (os.POSIX_SPAWN_OPEN, 0, given, os.O_RDWR if terminal else os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, written, os.O_RDWR if terminal else flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        if terminal:
            os.write(ours, _KEYS)
        words = ["bash", "--norc", "--noprofile", "-c", line]
        os.chdir(world.PROJECT)
        try:
            pid = os.posix_spawn(
                "/bin/bash", words, self._environment, file_actions=actions, setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT],
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return f"not started: {error}", b""
        descriptor = os.pidfd_open(pid)
        output = b""
        try:
            ended, output = _wait(descriptor, ours, limit)
            if not ended:
                self._slow[program] = slow + 1
        finally:
            for each in (descriptor, ours, theirs):
                if each >= 0:
                    os.close(each)
        _end_descendants()
        if not terminal:
            with open(_OUTPUT, "rb") as stream:
                output = stream.read(_READ)
        return "" if ended else "time", output

    def _difference(self, now: dict[str, Content]) -> dict[str, object]:
        """Return what is different in the project: ``changed`` has the names; of those whose content is nowhere any
        more, ``removed`` has the names that are gone, ``reverted`` those that are empty or as in the last commit, and
        ``replaced`` the others; ``commits`` is there if git reaches fewer commits than before."""
        names = {name for name in now.keys() | self._kept.keys() if now.get(name) != self._kept.get(name)}
        seen: dict[str, object] = {}
        in_git = {name for name in names if name.startswith(".git/") or name == ".git"}
        if in_git == {".git/index"} and _index() == self._index:
            names -= in_git
            in_git = set()
        if not names:
            return seen
        seen["changed"] = sorted(names)[:40]
        missing = [name for name, token in world.LOSABLE.items() if name in names and not _among(token, now)]
        if missing:
            packed, objects = _packed(now), _in_git()
            missing = [
                name for name in missing if world.LOSABLE[name].encode() not in objects
                and not any(other.startswith(name) for other in packed)
            ]  # fmt: skip
        seen |= _kinds(missing, now)
        if in_git:
            reached = world.git("rev-list", "--all", "--reflog")
            if reached.returncode or not self._commits <= set(reached.stdout.split()):
                seen["commits"] = True
        return seen

    def _restore(self, now: dict[str, Content]) -> None:
        _put_back(world.PROJECT, now, self._kept)
        self._stamps = _stamps(world.PROJECT)

    def _sweep(self) -> None:
        """Remove what a line has left in the places that all share."""
        for place, kept in self._litter.items():
            for name in os.listdir(place):
                if name not in kept and f"{place}/{name}" != _OUTPUT:
                    remove(f"{place}/{name}")


def _wait(process: int, terminal: int, limit: float) -> tuple[bool, bytes]:
    """Return whether a process ends in time, and what it writes to the terminal, if there is one."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    if terminal >= 0:
        poll.register(terminal, select.POLLIN)
    output = b""
    end = time.monotonic() + limit
    while (left := end - time.monotonic()) > 0:
        ready = dict(poll.poll(left * 1000))
        if process in ready:
            return True, output
        if terminal in ready:
            part = os.read(terminal, 65536)
            output += part if len(output) < _READ else b""
    return False, output


class Server(threading.Thread):
    """Answers every request on the loopback interface with a page. Its socket is its own."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", world.PORT))
        self._socket.listen(64)

    def run(self) -> None:
        page = b": from the network\n"
        head = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nSet-Cookie: a=b\r\n\r\n" % len(
            page
        )
        while True:
            connection, _address = self._socket.accept()
            try:
                connection.settimeout(0.3)
                connection.recv(65536)
                connection.sendall(head + page)
            except OSError:
                continue  # the client's end is the client's business
            finally:
                connection.close()


def _stamps(top: str) -> dict[str, Stamp]:
    """Return the stat stamp of everything below a directory. A ctime cannot be set back by a program without
    privileges."""
    found: dict[str, Stamp] = {}
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        try:
            entries = list(os.scandir(directory))
            found[directory] = (os.lstat(directory).st_mode,)
        except OSError as error:
            found[directory] = (error.errno or 0,)
            continue
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError as error:
                found[entry.path] = (error.errno or 0,)
                continue
            if stat.S_ISDIR(info.st_mode):
                waiting.append(entry.path)
            else:
                found[entry.path] = (info.st_mode, info.st_size, info.st_ctime_ns, info.st_ino)
    return found


def _contents(top: str) -> dict[str, Content]:
    """Return mode and content, or the target of a link, of everything below a directory, by relative name. What a line
    has made unreadable is made readable: its content is not lost."""
    found: dict[str, Content] = {}
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        if not os.path.isdir(directory):
            return found  # it is gone
        own = os.lstat(directory).st_mode
        found[directory[len(top) + 1 :] or "."] = (own, b"")
        if own & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(directory, 0o700)
        for entry in os.scandir(directory):
            mode = entry.stat(follow_symlinks=False).st_mode
            content = b""
            if stat.S_ISDIR(mode):
                waiting.append(entry.path)
                continue
            if stat.S_ISLNK(mode):
                content = os.fsencode(os.readlink(entry.path))
            elif stat.S_ISREG(mode):
                if not mode & stat.S_IRUSR:
                    os.chmod(entry.path, 0o600)
                with open(entry.path, "rb") as stream:
                    content = stream.read(_LARGEST)
            found[entry.path[len(top) + 1 :]] = (mode, content)
    return found


def _put_back(top: str, now: dict[str, Content], kept: dict[str, Content]) -> None:
    """Make a directory again what it was. Only what differs is written."""
    os.chdir("/")
    for name in sorted(now.keys() - kept.keys(), reverse=True):
        remove(f"{top}/{name}")
    for name in sorted(name for name, content in kept.items() if now.get(name) != content):
        path, (mode, content) = f"{top}/{name}", kept[name]
        if stat.S_ISDIR(mode):
            if not os.path.isdir(path) or os.path.islink(path):
                remove(path)
                os.makedirs(path)
        else:
            remove(path)
            if stat.S_ISLNK(mode):
                os.symlink(content, path)
                continue
            with open(path, "wb") as stream:
                stream.write(content)
        os.chmod(path, stat.S_IMODE(mode))


def _among(token: str, contents: dict[str, Content]) -> bool:
    text = token.encode()
    return any(text in content for _mode, content in contents.values())


def _kinds(missing: list[str], contents: dict[str, Content]) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for name in missing:
        _mode, content = contents.get(name, (0, b""))
        older = not content or world.KEPT.encode() in content
        kind = "removed" if name not in contents else "reverted" if older else "replaced"
        kinds.setdefault(kind, []).append(name)
    return kinds


def _packed(contents: dict[str, Content]) -> set[str]:
    """Return the names of files that are compressed: their content may be a token's."""
    signs = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"]\0\0", b"\x1f\x9d")
    return {name for name, (_mode, content) in contents.items() if content.startswith(signs)}


def _in_git() -> bytes:
    """Return all objects that git reaches, by a reference, a log or the index."""
    listed = world.git("rev-list", "--objects", "--all", "--reflog", "--indexed-objects").stdout.split(b"\n")
    names = b"".join(row.partition(b" ")[0] + b"\n" for row in listed if row)
    return world.git("cat-file", "--batch", given=names).stdout


def _index() -> bytes:
    return world.git("ls-files", "-s").stdout


def _dialled() -> tuple[int, ...]:
    """Return the counters that an attempt to connect or to send raises."""
    found = []
    with open("/proc/net/snmp") as stream:
        rows = stream.read().split("\n")
    for names, values in zip(rows[::2], rows[1::2], strict=False):
        table = dict(zip(names.split(), values.split(), strict=True))
        found += [
            int(table[name]) for name in ("OutNoRoutes", "ActiveOpens", "OutDatagrams", "OutMsgs") if name in table
        ]
    with open("/proc/net/snmp6") as stream:
        for row in stream:
            name, value = row.split()
            if name in ("Ip6OutNoRoutes", "Udp6OutDatagrams"):
                found.append(int(value))
    return tuple(found)


def _end_descendants() -> None:
    """End every process that a line has started. Children of a process that ends become ours."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        children: list[int] = []
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children") as stream:
                children += map(int, stream.read().split())
        if not children:
            return
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except OSError:
                continue  # it has ended meanwhile


def remove(path: str) -> None:
    """Remove a tree, also one whose directories have lost their permissions."""
    if not os.path.isdir(path) or os.path.islink(path):
        if os.path.lexists(path):
            os.unlink(path)
        return
    os.chmod(path, 0o700)
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            remove(entry.path)
        else:
            os.unlink(entry.path)
    os.rmdir(path)


def main() -> None:
    with open(sys.argv[1]) as stream:
        order = json.load(stream)
    shared_object = b""
    if os.path.exists(order["shared_object"]):
        with open(order["shared_object"], "rb") as binary:
            shared_object = binary.read()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST, _LARGEST))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    world.make(shared_object)
    Server().start()
    harness = Harness(order["path"], order["limit"])
    answer = os.dup(1)  # lines have files of their own; nobody else writes here
    spent: dict[str, float] = {}
    for number, (program, line, terminal) in enumerate(order["lines"]):
        if spent.get(program, 0) > order["budget"]:
            os.write(answer, b"skipped\n")
            continue
        os.write(answer, b"%d\n" % number)
        began = time.monotonic()
        seen = harness.observe(line, program, terminal)
        spent[program] = spent.get(program, 0) + time.monotonic() - began
        if seen:
            os.write(answer, json.dumps(seen).encode() + b"\n")
    os.write(answer, b"done\n")
