"""A project, one fork of it, and a client: what a session has for a sandbox, without the session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mudroom.core.plan import Plan
from mudroom.core.spec import Copy, Overlay, SandboxSpec
from mudroom.sandbox.capture import Output, attend
from mudroom.sandbox.client import Client, Exit, Running
from mudroom.sandbox.host import survey
from mudroom.sandbox.linux import compile_plan

ENVIRONMENT = {b"PATH": os.environb[b"PATH"], b"LC_ALL": b"C"}


class Box:
    def __init__(self, root: Path, client: Client) -> None:
        self.root, self.client = root, client
        self.project, self.home = root / "home" / "project", root / "home"
        self.upper, self.scratch, self.copy = root / "vault/upper", root / "vault/scratch", root / "vault/copy"
        for path in (self.project, self.upper, self.scratch, self.copy):
            path.mkdir(parents=True)
        self.host = survey(os.fsencode(self.home), os.environb[b"PATH"].split(b":"))
        self._works = 0

    def overlay(self, lowers: tuple[bytes, ...] = ()) -> Overlay:
        """With a work directory of its own: a volatile overlay refuses one that was used before."""
        self._works += 1
        work = self.root / f"vault/work{self._works}"
        work.mkdir()
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
        )
        return spec._replace(**changes)

    def plan(self, **changes: Any) -> Plan:
        return compile_plan(self.spec(**changes), self.host.machine)

    def run_spec(self, script: str, spec: SandboxSpec) -> tuple[Exit, str]:
        return self.run(script, compile_plan(spec, self.host.machine))

    def bare(self) -> Plan:
        """Without namespaces."""
        work, scratch = os.fsencode(self.copy), os.fsencode(self.scratch)
        return self.plan(view=Copy(work), cwd=work, namespaces=False, masks=(), scratch=scratch)

    def start(self, script: str, output: Output, plan: Plan | None = None, **options: Any) -> Running:
        argv = [b"sh", b"-c", script.encode()]
        chosen = self.plan() if plan is None else plan
        running = self.client.run(chosen, argv, ENVIRONMENT, output.descriptors, new_session=True, **options)
        for stream in output.streams:
            stream.close_write()
        return running

    def run(self, script: str, plan: Plan | None = None) -> tuple[Exit, str]:
        """Both streams, as text: a failing assertion shows them."""
        with Output(None, None, None, 1 << 20) as output:
            running = self.start(script, output, plan)
            ended, _timed_out = attend(running, output, None, lambda: None)
            running.gone()
            return ended, "".join(stream.data.decode() for stream in output.streams)
