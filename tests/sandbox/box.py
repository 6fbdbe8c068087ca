"""A project, a fork of it and a client: the parts of a session that a sandbox needs, without the session."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mudroom.core.confinement.limit import Limits, rlimits
from mudroom.core.confinement.plan import Plan, standing_plan
from mudroom.core.confinement.spec import Copy, Overlay, SandboxSpec
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.client import Running
from mudroom.sandbox.client.invocation import Exit, Invocation, RunOptions
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.client.template import StandingPlace, StandingSandbox
from mudroom.sandbox.host.host import landlock_abi, survey, without
from mudroom.sandbox.linux.plan import compile_plan
from mudroom.session.confinement.confinement import _permitted

ENVIRONMENT = {b"PATH": os.environb[b"PATH"], b"LC_ALL": b"C"}


def _namespaces() -> bool:
    """Whether user namespaces are permitted here, and mounts in them: in many containers they are not."""
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None)
        new_user_and_mount, recursive_and_private = ctypes.c_int(0x10020000), ctypes.c_ulong(0x44000)
        os._exit(libc.unshare(new_user_and_mount) or libc.mount(b"none", b"/", None, recursive_and_private, None))
    return os.waitpid(child, 0)[1] == 0


NAMESPACES = _namespaces()
if_namespaces = pytest.mark.skipif(not NAMESPACES, reason="user namespaces are not permitted here")
KINDS = (
    *(("overlay", "overlay prepared", "overlay standing", "copy", "copy prepared") if NAMESPACES else ()),
    *(("bare",) if landlock_abi() else ()),
)
"""Every way to confine a command here, performed by the launcher, by a template and its spare, or by a template whose
overlay stands."""
HELD_KINDS = tuple(kind for kind in KINDS if kind != "overlay standing")
"""The same, for sandboxes that several commands share, or that are in a control group."""


class Box:
    def __init__(self, root: Path, client: LauncherClient) -> None:
        self.root, self.client = root, client
        self.project, self.home = root / "home" / "project", root / "home"
        self.upper, self.scratch, self.copy = root / "vault/upper", root / "vault/scratch", root / "vault/copy"
        for path in (self.project, self.upper, self.scratch, self.copy):
            path.mkdir(parents=True, exist_ok=True)
        self.host = survey(os.fsencode(self.home), os.environb[b"PATH"].split(b":"))
        self._works = 0
        self._standing: StandingSandbox | None = None

    def overlay(self, lowers: tuple[bytes, ...] = ()) -> Overlay:
        """With a work directory of its own: a volatile overlay refuses one that was used before."""
        self._works += 1
        work = self.root / f"vault/works/{self._works}"
        work.mkdir(parents=True)
        return Overlay((*lowers, os.fsencode(self.project)), os.fsencode(self.upper), os.fsencode(work))

    def spec(self, **changes: Any) -> SandboxSpec:
        host = self.host
        spec = SandboxSpec(
            project=os.fsencode(self.project),
            view=changes.pop("view", None) or self.overlay(),
            cwd=os.fsencode(self.project),
            home=os.fsencode(self.home),
            scratch=os.fsencode(self.scratch),
            links=host.links,
            binds=(*host.system, *host.home),
            masks=host.masks,
            devices=host.devices,
            landlock_abi=host.landlock_abi,
            as_root=host.as_root,
            uid_map=host.uid_map,
            gid_map=host.gid_map,
            deny_setgroups=host.deny_setgroups,
            rlimits=tuple(_permitted(one) for one in rlimits(Limits())),  # sudo leaves us no core at all
        )
        return spec._replace(**changes)

    def plan(self, **changes: Any) -> Plan:
        if not NAMESPACES and changes.get("namespaces", True):
            pytest.skip("user namespaces are not permitted here")
        return compile_plan(self.spec(**changes), self.host.machine)

    def run_spec(self, script: str, spec: SandboxSpec) -> tuple[Exit, str]:
        return self.run(script, compile_plan(spec, self.host.machine))

    def bare(self) -> Plan:
        """Without namespaces."""
        work, scratch = os.fsencode(self.copy), os.fsencode(self.scratch)
        binds = (*without(self.host.system, self.host.masks), *self.host.home)
        return self.plan(view=Copy(work), cwd=work, namespaces=False, masks=(), binds=binds, scratch=scratch)

    def prepared(self, kind: str) -> Plan:
        """A plan of one of ``KINDS``, at the point of its session that it names."""
        mode, _space, which = kind.partition(" ")
        make = {"overlay": self.plan, "copy": lambda: self.plan(view=Copy(os.fsencode(self.copy))), "bare": self.bare}
        for _number in range(2 if which == "prepared" else 0):
            assert self.run("true", make[mode]())[0].status == 0
        plan = make[mode]()
        if which == "standing":
            self.stand(plan)
            assert self.run("true", plan)[0].status == 0
        return plan

    def stand(self, plan: Plan) -> Path:
        """Let the overlay of a plan stand from now on. Return the path of the door."""
        wanted, door = standing_plan(plan), self.root / f"door{self._works}"
        assert wanted is not None
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(os.fsencode(door))
            listening.listen()
            self._standing = self.client.templates.stand(wanted, listening.fileno())
        return door

    @property
    def standing(self) -> StandingSandbox:
        assert self._standing is not None
        return self._standing

    def staged(self, kind: str) -> Path:
        """Where the files of the view lie on the host."""
        return self.upper if kind.startswith("overlay") else self.copy

    def start(self, script: str, output: CapturedOutput, plan: Plan | None = None, **options: Any) -> Running:
        argv = [b"sh", b"-c", script.encode()]
        chosen = self.plan() if plan is None else plan
        wanted, standing = standing_plan(chosen), self._standing
        if standing is not None and (wanted is None or wanted.key != standing.plan.key):
            standing = None
        place = None if standing is None else StandingPlace(standing, refresh=True)
        invocation = Invocation(argv, ENVIRONMENT, output.descriptors)
        running = self.client.run(chosen, invocation, RunOptions(standing=place, **options))
        for stream in output.streams:
            stream.close_theirs()
        return running

    def run(self, script: str, plan: Plan | None = None) -> tuple[Exit, str]:
        """Both streams, as text: a failing assertion shows them."""
        with CapturedOutput(None, None, None, 1 << 20) as output:
            running = self.start(script, output, plan)
            ended, _timed_out = attend(running, output, None, lambda: None)
            running.wait_gone()
            return ended, "".join(stream.data.decode() for stream in output.streams)


class Conversation:
    """A command that waits for a word on its stdin, and says a line on its stdout, in turn with the test."""

    def __init__(self, box: Box, kind: str | Plan, script: str, **options: Any) -> None:
        self._stdin, self._write = os.pipe()
        self._output = CapturedOutput(self._stdin, None, None, 1 << 20, own=(self._stdin,))
        plan = box.prepared(kind) if isinstance(kind, str) else kind
        self.running: Running = box.start(script, self._output, plan, **options)
        self.stream = self._output.streams[0]

    def say(self, word: str = "go") -> None:
        os.write(self._write, word.encode() + b"\n")

    def hear(self) -> str:
        """One line; a command is expected to write it at once."""
        line = b""
        while not line.endswith(b"\n"):
            part = os.read(self.stream.read, 1)
            if not part:
                raise AssertionError(f"it ended: {line!r} {os.read(self._output.streams[1].read, 4096)!r}")
            line += part
        return line.decode().strip()

    def end(self) -> int:
        self.say()
        status = self.running.wait().status
        self.running.wait_gone()
        for descriptor in (self._stdin, self._write):
            os.close(descriptor)
        self._output.__exit__()
        return status


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has ended


def tree(root: int) -> list[int]:
    """Return a process and all below it, parents first."""
    found = [root]
    for pid in found:
        found += children(pid)
    return found


def kill_with_descendants(pid: int) -> None:
    """Kill a launcher or template, and wait until all that it has cloned has ended: it ends with it, and until then may
    hold its sockets."""
    ends = []
    for one in tree(pid):
        with suppress(ProcessLookupError):
            ends.append(os.pidfd_open(one))
    os.kill(pid, signal.SIGKILL)
    for end in ends:
        select.select([end], [], [])
        os.close(end)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Box]:
    """With a launcher of its own, so that the first run is the first."""
    client = LauncherClient(SpawnedLauncher())
    client.start()
    yield Box(tmp_path, client)
    client.close()
