"""Linux: the sandboxes in which the rows are tried. Nothing is opened by them: they say what holds here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.spec import Bind, Copy, SandboxSpec
from mudroom.ext.certify.ground import TrialGround
from mudroom.ext.certify.limit import LIMITS
from mudroom.ext.certify.trial import Trial, start_by
from mudroom.ext.certify.volume import Volume
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.host.host import survey, without
from mudroom.sandbox.linux.plan import compile_plan


def linux_trial(client: Client, *, home: bytes, search: Sequence[bytes], namespaces: bool, volume: Volume) -> Trial:
    """Return the trial of level 1 by ``client``: with namespaces, or by Landlock and a mediator alone. ``home`` and
    ``search`` are as for ``host.survey``."""
    host = survey(home, search)
    python = os.path.realpath(os.fsencode(sys.base_prefix))
    binds = (*host.system, *host.home, *(() if python == b"/usr" else (Bind(python, python),)))

    def prepare(ground: TrialGround, _port: int) -> Plan:
        top, work, private = (os.fsencode(path) for path in (ground.top, ground.work, ground.private))
        policy, tools = work + b"/.mudroom", top + b"/tools"
        more = [Bind(policy, policy)] if ground.row.where == "policy" else []
        masks = host.masks
        if ground.row.where == "mask":
            more, masks = [Bind(tools, tools)], (*masks, tools + b"/mask/secret")
        shown = (*binds, *more)
        spec = SandboxSpec(
            project=work,  # the copy is at its own path, as without namespaces, and the real project is nowhere
            view=Copy(work),
            cwd=work,
            home=home,
            scratch=private,
            namespaces=namespaces,
            links=host.links,
            binds=shown if namespaces else without(shown, masks),
            masks=masks if namespaces else (),
            devices=host.devices,
            landlock_abi=host.landlock_abi,
            as_root=host.as_root,
            uid_map=host.uid_map,
            gid_map=host.gid_map,
            deny_setgroups=host.deny_setgroups,
            rlimits=LIMITS.get(ground.row.name, ()),
        )
        return compile_plan(spec, host.machine)

    return Trial(prepare, start_by(client), volume)
