"""Runs lines inside a sandbox and tells what each did.

    python3 -I -S harness.py ORDER      ORDER: a file of JSON; the lines, the limit in seconds, the path of programs

A program whose lines have taken ``budget`` seconds together is left out from then on.

For each line: its index when it starts, or ``skipped``; then, if it had an effect, one line of JSON (``Observed``). The project is
compared after each line, and made anew if it has changed. Everything that a line has started is ended with it: the
harness is the reaper of its descendants (PR_SET_CHILD_SUBREAPER, prctl(2)).

A connection is noticed by the counters of the network namespace (/proc/net/snmp, RFC 2011 to 2013): the sandbox has
only a loopback interface, so every attempt raises one of them, whether anybody listens or not.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import shutil
import signal
import socket
import stat
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import world

_SUBREAPER = 36
_OUTPUT = "/var/tmp/output"  # noqa: S108
_LARGEST = 4 * 1024 * 1024
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
            "NO_UPDATE_NOTIFIER": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }  # fmt: skip
        self._restore()
        self._kept = _contents(world.PROJECT)  # owner: the caller's thread
        self._home = _contents(world.HOME)  # owner: the caller's thread
        self._commits = frozenset(world.git("rev-list", "--all").stdout.split())  # owner: the caller's thread
        self._index = _index()  # owner: the caller's thread
        self._litter = {place: set(os.listdir(place)) for place in ("/tmp", "/var/tmp", "/dev/shm")}  # noqa: S108

    def observe(self, line: str, program: str) -> dict[str, object]:
        """Return the effects of one line."""
        dialled = _dialled()
        end, output = self._run(line, program)
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
            seen |= self._difference()
            self._restore()
        if self._home_stamps != _stamps(world.HOME):
            now = _contents(world.HOME)
            outside = [name for name, content in self._home.items() if now.get(name) != content]
            if outside:
                seen["outside"] = sorted(outside)
            self._restore_home()
        self._sweep()
        if seen and end:
            seen["end"] = end
        return seen

    def _run(self, line: str, program: str) -> tuple[str, bytes]:
        """Return how it ended, empty for an exit, and what it has printed."""
        slow = self._slow.get(program, 0)
        limit = self._limit / 4 if slow >= _IMPATIENT else self._limit
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, _OUTPUT, flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        words = ["bash", "--norc", "--noprofile", "-c", line]
        try:
            pid = os.posix_spawn(
                "/bin/bash", words, self._environment, file_actions=actions, setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT],
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return f"not started: {error}", b""
        end = ""
        descriptor = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(limit * 1000):
                end = "time"
                self._slow[program] = slow + 1
        finally:
            os.close(descriptor)
        _end_descendants()
        with open(_OUTPUT, "rb") as stream:
            return end, stream.read(65536)

    def _difference(self) -> dict[str, object]:
        """Return what is different in the project: ``changed`` has the names; of those whose content is nowhere any
        more, ``removed`` has the names that are gone, ``reverted`` those that are empty or as in the last commit, and
        ``replaced`` the others; ``commits`` is there if git reaches fewer commits than before."""
        now = _contents(world.PROJECT)
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
            packed = _packed(now)
            missing = [
                name for name in missing if not _in_git(world.LOSABLE[name])
                and not any(other.startswith(name) for other in packed)
            ]  # fmt: skip
        for kind, names_of_kind in _kinds(missing, now).items():
            seen[kind] = names_of_kind
        if in_git:
            reached = world.git("rev-list", "--all", "--reflog")
            if reached.returncode or not self._commits <= set(reached.stdout.split()):
                seen["commits"] = True
        return seen

    def _restore(self) -> None:
        os.chdir("/")
        _remove(world.PROJECT)
        shutil.copytree(world.TEMPLATE, world.PROJECT, symlinks=True)
        os.chdir(world.PROJECT)
        self._stamps = _stamps(world.PROJECT)  # owner: the caller's thread
        if not hasattr(self, "_home_template"):
            self._home_template = world.HOME + ".template"  # owner: the caller's thread
            shutil.copytree(world.HOME, self._home_template)
            self._restore_home()

    def _restore_home(self) -> None:
        _remove(world.HOME)
        shutil.copytree(self._home_template, world.HOME)
        self._home_stamps = _stamps(world.HOME)  # owner: the caller's thread

    def _sweep(self) -> None:
        """Remove what a line has left in the places that all share."""
        for place, kept in self._litter.items():
            for name in os.listdir(place):
                if name not in kept and f"{place}/{name}" != _OUTPUT:
                    _remove(f"{place}/{name}")


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
        head = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nSet-Cookie: a=b\r\n\r\n" % len(page)
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
    """Return mode and content, or the target of a link, of everything below a directory, by relative name."""
    found: dict[str, Content] = {}
    for directory, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = f"{directory}/{name}"
            mode, content = 0, b""
            try:
                mode = os.lstat(path).st_mode
                if stat.S_ISLNK(mode):
                    content = os.fsencode(os.readlink(path))
                elif stat.S_ISREG(mode):
                    with open(path, "rb") as stream:
                        content = stream.read(_LARGEST)
            except OSError as error:
                content = repr(error.errno).encode()
            found[path[len(top) + 1 :]] = (mode, content)
    return found


def _among(token: str, contents: dict[str, Content]) -> bool:
    text = token.encode()
    return any(text in content for _mode, content in contents.values())


def _kinds(missing: list[str], contents: dict[str, Content]) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for name in missing:
        _mode, content = contents.get(name, (0, b""))
        older = not content or world.KEPT.encode() in content
        kinds.setdefault("removed" if name not in contents else "reverted" if older else "replaced", []).append(name)
    return kinds


def _packed(contents: dict[str, Content]) -> set[str]:
    """Return the names of files that are compressed: their content may be a token's."""
    signs = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"]\0\0", b"\x1f\x9d")
    return {name for name, (_mode, content) in contents.items() if content.startswith(signs)}


def _in_git(token: str) -> bool:
    """Return whether git reaches an object with this token, by a reference, a log or the index."""
    listed = world.git("rev-list", "--objects", "--all", "--reflog", "--indexed-objects")
    for row in listed.stdout.split(b"\n"):
        name = row.partition(b" ")[0].decode()
        if name and token.encode() in world.git("cat-file", "-p", name).stdout:
            return True
    return False


def _index() -> bytes:
    return world.git("ls-files", "-s").stdout


def _dialled() -> tuple[int, ...]:
    """Return the counters that an attempt to connect or to send raises."""
    found = []
    with open("/proc/net/snmp") as stream:
        rows = stream.read().split("\n")
    for names, values in zip(rows[::2], rows[1::2], strict=False):
        table = dict(zip(names.split(), values.split(), strict=True))
        found += [int(table[name]) for name in ("OutNoRoutes", "ActiveOpens", "OutDatagrams", "OutMsgs") if name in table]
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


def _remove(path: str) -> None:
    """Remove a tree, also one whose directories have lost their permissions."""
    if not os.path.isdir(path) or os.path.islink(path):
        if os.path.lexists(path):
            os.unlink(path)
        return
    os.chmod(path, 0o700)
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            _remove(entry.path)
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
    for number, (program, line) in enumerate(order["lines"]):
        if spent.get(program, 0) > order["budget"]:
            os.write(answer, b"skipped\n")
            continue
        os.write(answer, b"%d\n" % number)
        began = time.monotonic()
        seen = harness.observe(line, program)
        spent[program] = spent.get(program, 0) + time.monotonic() - began
        if seen:
            os.write(answer, json.dumps(seen).encode() + b"\n")
    os.write(answer, b"done\n")


if __name__ == "__main__":
    main()
