"""Many binds in one root: what a policy that shows three thousand paths costs, in the launcher alone and in bwrap.

bwrap takes no more than 9,000 arguments, so it is given as many binds as fit; it looks its mount table up for each.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator

from bench.measure import Contestant, Finding, Lap, Rival, against, at_most, at_most_times, interleave, seconds_of
from bench.place import BWRAP, Place, Scale, new_place
from mudroom.core.confinement.spec import Bind, Copy, SandboxSpec
from mudroom.sandbox.client.invocation import Invocation
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.host.host import survey
from mudroom.sandbox.linux.plan import compile_plan

_FULL, _QUICK, _BWRAP_TAKES = 3_000, 300, 2_900
_ROUNDS = 5


def many_binds(base: bytes, scale: Scale) -> Iterator[Finding]:
    count = _FULL if scale.tree > 1_000 else _QUICK
    with new_place(base, "binds") as place:
        paths = _directories(place.root + b"/shown", count)
        name = f"bwrap, {min(count, _BWRAP_TAKES):,} binds"
        rival = Rival(_bubblewrap(paths), name)
        found = interleave([_launcher(place, paths), _launcher(place, []), rival], _ROUNDS)
    others = against(found, ["mudroom, no bind", name], {name: at_most_times(1)})
    budget = at_most(0.1, "100 ms")
    yield Finding("binds", f"true with {count:,} binds, none of it prepared", found[f"{count} binds"], budget, others)


def _directories(top: bytes, count: int) -> list[bytes]:
    paths = [top + b"/d%02d/e%04d" % (number % 50, number) for number in range(count)]
    for path in paths:
        os.makedirs(path)
    return paths


def _launcher(place: Place, paths: list[bytes]) -> Contestant:
    """A launcher that runs, but has never seen this root."""
    for name in (b"/copy", b"/scratch"):
        os.makedirs(place.root + name, exist_ok=True)
    host = survey(place.home, [b"/usr/bin", b"/bin"])
    spec = SandboxSpec(
        project=place.project, view=Copy(place.root + b"/copy"), cwd=place.project, home=place.home,
        scratch=place.root + b"/scratch", links=host.links, binds=(*host.system, *host.home), masks=host.masks,
        devices=host.devices, landlock_abi=host.landlock_abi, as_root=host.as_root, uid_map=host.uid_map,
        gid_map=host.gid_map, deny_setgroups=host.deny_setgroups,
    )  # fmt: skip
    shown = spec._replace(binds=(*spec.binds, *(Bind(path, path) for path in paths)))

    def once(client: LauncherClient, of: SandboxSpec) -> None:
        running = client.run(compile_plan(of, host.machine), Invocation([b"/bin/true"], {}, (0, 1, 2)))
        if running.wait().status:
            raise RuntimeError("true has failed")
        running.wait_gone()

    def measure() -> Iterator[Lap]:
        client = LauncherClient(SpawnedLauncher())
        try:
            client.start()
            once(client, spec._replace(umask=0o077))  # the launcher is up, and has another root
            yield f"{len(paths)} binds" if paths else "mudroom, no bind", seconds_of(lambda: once(client, shown))
        finally:
            client.close()

    return measure


def _bubblewrap(paths: list[bytes]) -> Contestant:
    taken = paths[:_BWRAP_TAKES]

    def measure() -> Iterator[Lap]:
        with tempfile.TemporaryFile() as arguments:
            arguments.write(b"".join(b"--ro-bind\0%s\0%s\0" % (path, path) for path in taken))
            arguments.flush()
            os.lseek(arguments.fileno(), 0, os.SEEK_SET)
            argv = [*BWRAP, "--args", str(arguments.fileno()), "/bin/true"]
            passed = (arguments.fileno(),)
            seconds = seconds_of(lambda: subprocess.run(argv, check=True, pass_fds=passed))
        yield f"bwrap, {len(taken):,} binds", seconds

    return measure
