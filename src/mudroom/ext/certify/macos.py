"""macOS: the sandboxes in which the rows are tried."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.spec import Bind, Copy, HostView, Network, SandboxSpec
from mudroom.ext.certify.ground import LIMITS, TrialGround
from mudroom.ext.certify.trial import Trial, start_by
from mudroom.ext.certify.volume import Volume
from mudroom.ext.macos.host import survey_mac, true_path
from mudroom.ext.macos.seatbelt import compile_seatbelt, literal, subpath
from mudroom.sandbox.client.client import Client


def mac_trial(client: Client, *, home: bytes, search: Sequence[bytes], volume: Volume) -> Trial:
    """Return the Seatbelt trial by ``client``. ``home`` and ``search`` are as for ``host.survey``."""
    host = survey_mac(home, search)
    python = true_path(os.fsencode(sys.base_prefix))
    binds = (*host.system, *host.home, Bind(python, python))

    def prepare(ground: TrialGround, port: int) -> Plan:
        top, work, private = (os.fsencode(path) for path in (ground.top, ground.work, ground.private))
        spec = SandboxSpec(
            project=os.fsencode(ground.project),
            view=Copy(work),
            cwd=work,
            home=private,
            scratch=private,
            namespaces=False,
            links=host.links,
            binds=binds,
            masks=host.masks,
            rlimits=LIMITS.get(ground.row.name, ()),
        )
        tools = top + b"/tools"
        if ground.row.where == "mask":
            spec = spec._replace(binds=(*binds, Bind(tools, tools)), masks=(*host.masks, tools + b"/mask/secret"))
        if ground.row.way == "gate":
            spec = spec._replace(network="gate", proxy=port)
        if ground.row.way == "level 0":
            network: Network = "open" if ground.row.service else "none"
            spec = spec._replace(home=home, network=network, around=HostView(hidden=(top + b"/store",)))
        plan = compile_seatbelt(spec)
        more = LANGUAGE[ground.row.name](os.fsencode(ground.aim)) if ground.row.way == "language" else b""
        return plan._replace(steps=tuple((*step[:2], step[2] + more) if more and step[0] == "seatbelt" else step
                                         for step in plan.steps))  # fmt: skip

    return Trial(prepare, start_by(client), volume)


def _exception(aim: bytes) -> bytes:
    return b"(deny file-read-data %s)\n" % literal(aim + b"/secret")


def _itself(aim: bytes) -> bytes:
    return b"(deny file-read-data %s)\n" % subpath(aim)


def _precedence(aim: bytes) -> bytes:
    """Return rules that contradict each other, for the deed ``reading``: named against wildcard, filtered against
    unfiltered, and a filtered wildcard against an unfiltered name. The last rule decides in each known order."""
    one, two, three = (literal(aim + name) for name in (b"/secret", b"/target", b"/d"))
    return b"".join((
        b"(allow file-read-data %s)\n(deny file-read* %s)\n" % (one, one),
        b"(allow file-write-mode %s)\n(deny file-write-mode)\n" % two,
        b"(allow file-write* %s)\n(deny file-write-times)\n" % three,
        b"(deny file-write-mode %s)\n" % one,
    ))  # fmt: skip


LANGUAGE: Mapping[str, Callable[[bytes], bytes]] = {
    "exception": _exception,
    "quoting": _exception,
    "accent": _exception,
    "itself": _itself,
    "precedence": _precedence,
}
"""Further profile rules, by the row's name, for the directory that its deed is aimed at."""
