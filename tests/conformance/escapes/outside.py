"""The host around an escape: canaries that sing when something gets out, and the judgement.

One ``Range`` is a home with a project, files beside it, servers, queues, processes and terminals, all made for it and
all its own. ``judge`` says which attempts have succeeded, each with the evidence.
"""

from __future__ import annotations

import ctypes
import json
import os
import pty
import secrets
import signal
import socket
import struct
import tempfile
import tty
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mudroom.stage.layers.layer import remove_tree

from ..attempt import Attempt  # noqa: TID252 - the package has another name inside
from ..outside import Outcome, answers, attempting, plant  # noqa: TID252
from .attempt import TABLE
from .call import buffer, call
from .files import SYSTEM
from .groups import GROUPS
from .ipc import SLOT
from .kernel import USER_KEYRING
from .listening import Listener

_OWN_VICTIM = ("signals", "priorities")
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/run", *SYSTEM)


Runner = Callable[[list[str]], str]
"""Runs a command in the project's directory, confined in some way, and gives its stdout."""


class Range:
    """Made for one series of attempts; ``close`` takes everything away."""

    def __init__(self) -> None:
        assert GROUPS, "the modules of the groups fill the table"
        self.root = Path(tempfile.mkdtemp(prefix="esc-", dir="/var/tmp"))
        self.nonce = "escape-" + secrets.token_hex(4)
        self.token = "CANARY-" + secrets.token_hex(16)
        self.home, self.project = self.root / "home", self.root / "home/project"
        self.tmp = Path(tempfile.mkdtemp(prefix="esc-", dir="/tmp"))
        self.outside = self.home / "outside"
        self._make_files()
        self._listener = Listener(self.home, self.tmp)
        self._ours, theirs = pty.openpty()
        tty.setraw(theirs)
        self._listener.hear(self._ours)
        self._terminal = theirs
        self.queue = "esc" + secrets.token_hex(4)
        self.ipc = self._make_ipc()
        self.victims = self._make_victims()
        self.inherited = self._make_inherited()
        self._keys = self._make_keys()
        self._write_world()

    # --- what there is ---

    def _make_files(self) -> None:
        self.project.mkdir(parents=True)
        plant("escapes", self.project)
        for path in (self.tmp / "secret", self.home / ".ssh/id_ed25519", self.home / "other/.env"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(self.token)
        for name in TABLE:
            own = self.outside / name
            (own / "d").mkdir(parents=True)
            (own / "target").write_text("untouched")
            (own / "secret").write_text(self.token)
            os.setxattr(own / "target", "user.kept", b"kept")
            os.symlink("target", own / "link")

    def _make_ipc(self) -> dict[str, int]:
        key = secrets.randbelow(1 << 30) | 0x10000
        found = {
            "shm-key": key, "shm-id": call("shmget", key, SLOT * (len(TABLE) + 1), 0o1600),
            "sem-key": key, "sem-id": call("semget", key, 4, 0o1600),
            "left-key": key + 1, "msg-key": key, "msg-id": call("msgget", key, 0o1600),
        }  # fmt: skip
        self._shared = call("shmat", found["shm-id"], 0, 0)
        ctypes.memmove(self._shared, self.token.encode(), len(self.token))
        message = struct.pack("<q", 99) + self.token.encode()
        call("msgsnd", found["msg-id"], message, len(self.token), 0o4000)
        for name in (self.queue, f"{self.queue}-gone"):
            call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, struct.pack("<8q", 0, 10, 128, 0, 0, 0, 0, 0))
            Path(f"/dev/shm/{name}").write_text(self.token)
        return found

    def _make_victims(self) -> dict[str, int]:
        own = [attempt.name for attempt in TABLE.values() if attempt.group in _OWN_VICTIM]
        return {name: self._victim() for name in ("", *own)}

    def _victim(self) -> int:
        secret = os.open(self.tmp / "secret", os.O_RDONLY)
        actions = [(os.POSIX_SPAWN_DUP2, secret, 7)]
        argv = [f"victim-{self.token}", "1000"]
        pid = os.posix_spawn("/bin/sleep", argv, {"SECRET": self.token}, setsid=True, file_actions=actions)
        os.close(secret)
        return pid

    def _make_inherited(self) -> tuple[int, ...]:
        """What somebody forgot to close on exec: a secret, the root directory, a socket to a server."""
        ours, theirs = socket.socketpair()
        self._listener.hear(ours.detach())
        found = (os.open(self.tmp / "secret", os.O_RDONLY), os.open("/", os.O_RDONLY | os.O_DIRECTORY), theirs.detach())
        for descriptor in found:
            os.set_inheritable(descriptor, True)
        return found

    def _write_world(self) -> None:
        told = {
            "world": {
                "project": str(self.project), "home": str(self.home), "tmp": str(self.tmp), "harness": os.getpid(),
                "nonce": self.nonce,
                "sockets": self._listener.paths, "ports": self._listener.ports, "ipc": self.ipc, "queue": self.queue,
                "terminal": os.ttyname(self._terminal),
            },
            "outside": str(self.outside),
            "victims": self.victims,
        }  # fmt: skip
        (self.project / "world.json").write_text(json.dumps(told))

    @property
    def environment(self) -> dict[str, str]:
        """What a user starts a sandbox with."""
        return {**os.environ, "HOME": str(self.home), "SECRET_OF_HOST": self.token, "LC_ALL": "C"}

    def _make_keys(self) -> tuple[int, ...]:
        """In the user's keyring: readable by the user, as a login or a keyring daemon leaves them."""
        names = (f"{self.queue}-key", f"escape-{self.token}")
        try:
            keys = tuple(call("add_key", "user", name, self.token, len(self.token), USER_KEYRING) for name in names)
            for key in keys:
                call("keyctl", 5, key, 0x3F3F0000)
        except OSError:
            return ()  # no keyrings here, or none for us
        return keys

    # --- attempts and their judgement ---

    def try_all(self, run: Runner, names: Sequence[str]) -> dict[str, Outcome]:
        """Those that can be are tried together; who ends others is tried alone. The range is used up after that."""
        before = {name: snapshot(self.outside / name) for name in names}
        health = {name: condition(pid) for name, pid in self.victims.items()}
        together = [name for name in names if not TABLE[name].alone]
        said: dict[str, dict[str, str]] = {}
        for batch in ([together] if together else []) + [[name] for name in names if TABLE[name].alone]:
            said |= answers(run(attempting("escapes", batch)))
        self._listener.settle()
        self._found = self._traces()
        return {name: self._judge(TABLE[name], said.get(name, {}), before[name], health) for name in names}

    def _judge(
        self, attempt: Attempt, said: Mapping[str, str], before: Any, health: Mapping[str, tuple[Any, ...]]
    ) -> Outcome:
        evidence = ""
        claimed = said.get("evidence", "")
        if attempt.proof == "secret" and self.token in claimed:
            evidence = "read a secret"
        elif attempt.proof == "claim" and claimed:
            evidence = claimed
        found = [evidence, *self._canaries(attempt, before, health)]
        how = "; ".join(dict.fromkeys(one for one in found if one))
        return Outcome(attempt.name, how, said.get("error", "no answer"))

    def _canaries(self, attempt: Attempt, before: Any, health: Mapping[str, tuple[Any, ...]]) -> list[str]:
        mark = f"{self.nonce}:{attempt.name}:"
        found = [
            "changed files" if snapshot(self.outside / attempt.name) != before else "",
            "was heard" if mark.encode() in self._listener.heard else "",
            *(trace for trace, text in self._found if mark in text),
            self._planted(attempt.name),
            self._left_in_memory(attempt, mark),
        ]
        if attempt.name in self.victims and condition(self.victims[attempt.name]) != health[attempt.name]:
            found.append("hurt a process")
        return found

    def _traces(self) -> list[tuple[str, str]]:
        """What went on or was left in the end, each with the text that says whose it was. Taken away."""
        found = []
        for pid, name in processes_called(self.nonce):
            os.kill(pid, signal.SIGKILL)
            found.append(("a process went on", name))
        for directory in _SHARED:
            for path in Path(directory).glob(f"{self.nonce}*"):
                path.unlink()
                found.append((f"left a file in {directory}", path.name))
        for top, directories, files in os.walk(self.home):
            directories[:] = [name for name in directories if Path(top, name) not in (self.outside, self.project)]
            paths = [path for path in (Path(top, name) for name in files) if path.is_file() and not path.is_symlink()]
            found += [(f"planted {path.name}", path.read_text(errors="replace")) for path in paths]
        found += [(f"wrote {path.name}", path.read_text()) for path in self.project.iterdir() if path.is_file()]
        return found

    def _planted(self, name: str) -> str:
        """In the project, where a first creation was tried: some tools write there in place."""
        planted = [path for path in (self.project / f"work/{name}/planted").rglob("*") if path.is_file()]
        return f"planted {planted[0].name}" if planted else ""

    def _left_in_memory(self, attempt: Attempt, mark: str) -> str:
        written = ctypes.string_at(self._shared + SLOT * sorted(TABLE).index(attempt.name), SLOT)
        special: dict[str, Callable[[], bool]] = {
            "sem_raise": lambda: call("semctl", self.ipc["sem-id"], 0, 12) != 0,
            "sem_set": lambda: call("semctl", self.ipc["sem-id"], 1, 12) != 0,
            "msg_send": lambda: mark in self._message(),
            "mq_send": lambda: mark in self._queued(),
            "mq_leave": lambda: _gone(f"{self.queue}-left"),
            "mq_remove": lambda: not _gone(f"{self.queue}-gone"),
            "posix_shm_remove": lambda: not os.path.exists(f"/dev/shm/{self.queue}-gone"),
            "shm_leave": lambda: _removed_segment(self.ipc["left-key"]),
        }
        found = mark.encode() in written or special.get(attempt.name, bool)()
        return "left something in memory" if found else ""

    def _message(self) -> str:
        area = buffer(512)
        try:
            size = call("msgrcv", self.ipc["msg-id"], area, 500, 1, 0o4000)
        except OSError:
            return ""
        return area.raw[8 : 8 + size].decode()

    def _queued(self) -> str:
        area = buffer(128)
        queue = call("mq_open", self.queue, os.O_RDONLY | os.O_NONBLOCK, 0, 0)
        try:
            size = call("mq_timedreceive", queue, area, 128, 0, 0)
            return area.raw[:size].decode()
        except OSError:
            return ""
        finally:
            os.close(queue)

    def close(self) -> None:
        for pid in self.victims.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        call("shmctl", self.ipc["shm-id"], 0, 0)
        call("semctl", self.ipc["sem-id"], 0, 0, 0)
        call("msgctl", self.ipc["msg-id"], 0, 0)
        for name in (self.queue, f"{self.queue}-gone"):
            _gone(name)
            Path(f"/dev/shm/{name}").unlink(missing_ok=True)
        for key in self._keys:
            call("keyctl", 9, key, USER_KEYRING, 0, 0)
        self._listener.close()
        for descriptor in (*self.inherited, self._terminal):
            os.close(descriptor)
        for path in (self.root, self.tmp):
            remove_tree(os.fsencode(path))

    def __enter__(self) -> Range:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _gone(queue: str) -> bool:
    """Remove a queue; whether there was one."""
    try:
        call("mq_unlink", queue)
    except OSError:
        return False
    return True


def _removed_segment(key: int) -> bool:
    try:
        call("shmctl", call("shmget", key, 0, 0), 0, 0)
    except OSError:
        return False
    return True


def snapshot(top: Path) -> list[Any]:
    """All that can be changed of files: whatever it was, the ctime tells."""
    found = []
    for path in [top, *sorted(top.rglob("*"))]:
        info = path.lstat()
        names = os.listxattr(path, follow_symlinks=False)
        found.append((path, info.st_mode, info.st_uid, info.st_size, info.st_mtime_ns, info.st_ctime_ns, tuple(names)))
    return found


def condition(pid: int) -> tuple[Any, ...]:
    """What can be done to a process without reading it."""
    changed = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    if changed is not None:
        return ("ended or stopped", changed.si_status)
    limits = buffer(16)
    call("prlimit64", pid, 7, 0, limits)
    return (
        os.getpriority(os.PRIO_PROCESS, pid),
        os.sched_getscheduler(pid),
        os.sched_getaffinity(pid),
        call({"x86_64": 252}.get(os.uname().machine, 31), 1, pid),  # ioprio_get(2)
        limits.raw,
        Path(f"/proc/{pid}/oom_score_adj").read_text(),
    )


def processes_called(mark: str) -> list[tuple[int, str]]:
    """Whose first argument begins so; zombies have none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            name = path.read_bytes().decode(errors="replace")
            if name.startswith(mark):
                found.append((int(path.parent.name), name))
        except OSError:
            continue
    return found
