"""Overlays of many layers, really mounted: by the way of this kernel, and by that of a kernel before Linux 6.8."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from box import Box, if_namespaces
from mudroom.sandbox.client import launcher_client
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.client.report import StepFailed
from native_init import compile_launcher

pytestmark = [pytest.mark.both_users, pytest.mark.root]


@pytest.fixture
def box(tmp_path: Path, client: LauncherClient) -> Box:
    return Box(tmp_path, client)


def layers(box: Box, count: int) -> tuple[bytes, ...]:
    """Topmost first. Every layer has a file of its own, and its own idea of ``all``."""
    (box.project / "base").write_text("base\n")
    (box.project / "all").write_text("base\n")
    made = []
    for number in range(count):
        layer = box.root / "a layer, with: odd\\name" / str(number)
        layer.mkdir(parents=True)
        (layer / f"l{number}").write_text(f"{number}\n")
        (layer / "all").write_text(f"{number}\n")
        made.append(os.fsencode(layer))
    return tuple(made)


@pytest.mark.parametrize("count", [1, 2, 15, 119, 499])
def test_many_layers(box: Box, count: int) -> None:
    below = layers(box, count)
    for number in range(2):  # the second is the template's
        plan = box.plan(view=box.overlay(below))
        script = f"ls | wc -l; cat all l0 l{count - 1} base; rm -f l{count - 1} base; echo {number} > all"
        ended, output = box.run(script, plan)
        assert ended.status == 0 or number, output
        if not number:
            assert output.split() == [str(count + 2), "0", "0", str(count - 1), "base"]
    assert (box.upper / "all").read_text() == "1\n"
    assert {path.name for path in box.upper.iterdir()} == {"all", f"l{count - 1}", "base"}
    assert (box.project / "base").read_text() == "base\n"


def test_too_many_layers_for_the_kernel_fail_as_the_overlay(box: Box) -> None:
    """A session may then try the next mode (``core/confinement/fallback.py``)."""
    plan = box.plan(view=box.overlay(layers(box, 3)))
    at = next(index for index, step in enumerate(plan.steps) if step[0] == "overlay")
    step = plan.steps[at]
    many = (*step[:2], step[2] * 130, *step[3:])
    with pytest.raises(StepFailed) as caught:
        box.run("true", plan._replace(steps=(*plan.steps[:at], many, *plan.steps[at + 1 :])))
    assert caught.value.op == "overlay"


OLDER = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#undef syscall
long syscall(long number, ...);

/* fsconfig(2) of a kernel before 6.8, which has no option for each lower. 6.5 says so when it is set; 6.1 takes what it
   is given, and looks at it when the file system is made. */
long older_syscall(long number, long one, long two, const void *three, const void *four, long five, long six)
{
    static int has_met;
    if (number == 431 && two == 1 && strcmp(three, "lowerdir+") == 0) {
        has_met = 1;
        errno = EINVAL;
        return KERNEL == 65 ? -1 : 0;
    }
    if (number == 431 && two == 6 && has_met) {
        has_met = 0;
        errno = EINVAL;
        return -1;
    }
    return syscall(number, one, two, three, four, five, six);
}
"""


@pytest.fixture(scope="module", params=["61", "65"])
def older_launcher(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    place = tmp_path_factory.mktemp("older")
    source = place / "older.c"
    source.write_text(OLDER)
    words = (f"-DKERNEL={request.param}", "-w", "-Dsyscall=older_syscall", "-Wno-error", source)
    return compile_launcher(place, *map(str, words), "-w")


@pytest.fixture
def older(older_launcher: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """A box whose launcher is on an older kernel."""
    monkeypatch.setattr(launcher_client, "LAUNCHER", older_launcher)
    monkeypatch.setattr(launcher_client, "_program", [])
    client = LauncherClient(SpawnedLauncher())
    client.start()
    yield Box(tmp_path / "box", client)
    client.close()


@if_namespaces
@pytest.mark.parametrize("count", [1, 15, 119, 499])
def test_many_layers_on_an_older_kernel(older: Box, count: int) -> None:
    plan = older.plan(view=older.overlay(layers(older, count)))
    script = "ls | wc -l; cat all l0 base; echo new > new; grep ' overlay ' /proc/self/mountinfo | cut -d' ' -f6"
    ended, output = older.run(script, plan)
    assert ended.status == 0, output
    assert output.split() == [str(count + 2), "0", "0", "base", "rw,nosuid,nodev,relatime"]
    assert (older.upper / "new").read_text() == "new\n"
