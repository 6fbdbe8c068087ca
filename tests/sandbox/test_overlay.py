"""Overlays of many layers, really mounted: by the way of this kernel, and by that of a kernel before Linux 6.8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from box import Box, if_namespaces
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.sandbox.client.report import StepFailed

pytestmark = pytest.mark.both_users


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


OLD_KERNEL = """
import os, sys
from mudroom.sandbox.launcher import step
from mudroom.sandbox.launcher.step_context import StepContext
from mudroom.sandbox.launcher.kernel import libc

uid, gid = os.getuid(), os.getgid()
assert libc.unshare(0x10020000) == 0  # CLONE_NEWUSER | CLONE_NEWNS
for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
    with open(f"/proc/self/{name}", "w") as stream:
        stream.write(content)
system_call = step.syscall

kind, *words = sys.argv[1:]
met = []

def older(number, *arguments):
    if b"lowerdir+" in arguments:
        met.append(arguments)
        if kind == "6.5":
            raise OSError(22, "Invalid argument")
        return 0  # 6.1 takes whatever it is given,
    if met and number == step.SYS_fsconfig and arguments[1] == 6:
        met.clear()
        raise OSError(22, "Invalid argument")  # and looks at it when the file system is made
    return system_call(number, *arguments)

step.syscall = older
scratch, upper, work, *lowers = (os.fsencode(word) for word in words)
context = StepContext(0)
step.step_private(context)
step.step_root(context, scratch, ())
step.step_overlay(context, b"a/view", tuple(lowers), upper, work, True)
view = os.open(b"a/view", os.O_RDONLY, dir_fd=context.root)
print(len(os.listdir(view)))
for name in ("all", "l0", "base"):
    with open(os.open(name, os.O_RDONLY, dir_fd=view)) as stream:
        print(stream.read().strip())
with open(os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=view), "w") as stream:
    stream.write("new")
with open("/proc/self/mountinfo") as stream:
    print(next(line for line in stream if " overlay " in line and "a/view" in line).split()[5])
"""


@if_namespaces
@pytest.mark.parametrize("kind", ["6.1", "6.5"])
@pytest.mark.parametrize("count", [1, 15, 119, 499])
def test_many_layers_on_an_older_kernel(box: Box, count: int, kind: str) -> None:
    view = box.overlay(layers(box, count))
    words = [os.fsencode(box.scratch), view.upper, view.work, *view.lowers]
    done = subprocess.run(
        [sys.executable, "-c", OLD_KERNEL, kind, *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(count + 2), "0", "0", "base", "rw,nosuid,nodev,relatime"]
    assert (box.upper / "new").read_text() == "new"
