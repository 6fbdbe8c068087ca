"""Steps of a plan: what they refuse, and what their failure says."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from box import Box, if_namespaces
from mudroom.core.confinement.plan import Plan, Step
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.sandbox.client.report import StepFailed

pytestmark = [pytest.mark.both_users, pytest.mark.root, if_namespaces]


@pytest.fixture
def box(tmp_path: Path, client: LauncherClient) -> Box:
    return Box(tmp_path, client)


def with_steps(plan: Plan, *steps: Step) -> Plan:
    """Return a plan with steps in the new root, before the view is sent."""
    at = next(index for index, step in enumerate(plan.steps) if step[0] == "view")
    return plan._replace(steps=(*plan.steps[:at], *steps, *plan.steps[at:]))


def failure(box: Box, *steps: Step) -> tuple[str, int] | None:
    """Return the step that fails, with its error; None if the command has run."""
    try:
        assert box.run("true", with_steps(box.plan(), *steps))[0].status == 0
    except StepFailed as failed:
        return failed.op, failed.number
    return None


ROOT: tuple[Step, ...] = (
    ("directory", b"t/real/deep", 0o755),
    ("file", b"t/real/file", b"", 0o644),
    ("symlink", b"/usr", b"t/absolute"),
    ("symlink", b"real", b"t/relative"),
    ("symlink", b"../../..", b"t/out"),
    ("symlink", b"round", b"t/round"),
)


def test_what_is_where_it_seems_is_beneath(box: Box) -> None:
    places = (b"t/real", b"t/real/deep", b"t/real/file", b"t/relative/deep")
    assert failure(box, *ROOT, *(("beneath", place) for place in places)) is None


@pytest.mark.parametrize(
    ("path", "number"),
    [
        *((path, errno.ELOOP) for path in ("absolute", "absolute/bin", "relative", "out", "out/x", "round", "round/x")),
        *((path, errno.ENOENT) for path in ("nothing", "real/nothing/deep")),
        ("real/file/x", errno.ENOTDIR),
    ],
)
def test_what_is_not_is_told(box: Box, path: str, number: int) -> None:
    assert failure(box, *ROOT, ("beneath", b"t/" + path.encode())) == ("beneath", number)


@pytest.mark.parametrize("above", [True, False])
def test_a_mount_follows_no_link_of_a_command(box: Box, above: bool) -> None:
    """A command may put a link where a later one in its fork has a mount, or above it."""
    place, link = ("linked/deep", "linked") if above else ("linked", "linked")
    assert box.run(f"mkdir other && ln -s other {link}", box.plan())[0].status == 0
    (box.home / "shown").mkdir()
    source, path = os.fsencode(box.home / "shown"), os.fsencode(box.project / place)[1:]
    steps: list[Step] = [
        ("bind", source, path, 1, False),
        ("inside", source, path, 1),
        ("directory", path, 0o700),
        ("tmpfs", path, (), 1),
        ("proc", path),
        ("devpts", path),
        ("freeze", path),
        ("seal", path, 1),
        ("spread", path, ()),
    ]
    if above:  # else the name is there
        steps += [("file", path, b"x", 0o600), ("symlink", b"x", path)]
    for step in steps:
        assert failure(box, step) == (step[0], errno.ELOOP)
    assert list((box.upper / "other").iterdir()) == []


def test_no_step_leads_out_of_the_root(box: Box) -> None:
    """Also where the path has no link."""
    path = os.fsencode(box.project)[1:] + b"/.." * (len(box.project.parts) + 1) + b"/x"
    for step in (("directory", path, 0o700), ("file", path, b"", 0o600), ("tmpfs", path, (), 1)):
        assert failure(box, step) == (step[0], errno.EXDEV)


def test_renames_elsewhere_end_no_step(box: Box) -> None:
    """openat2(2) returns EAGAIN for a ``..`` if anything was renamed or mounted meanwhile."""
    renaming = "import os\nprint(flush=True)\nwhile True: os.rename('one', 'two'); os.rename('two', 'one')"
    elsewhere = box.root / "busy"
    elsewhere.mkdir()
    (elsewhere / "one").touch()
    path = os.fsencode(box.project)[1:] + b"/a/.." * 300 + b"/.." * (len(box.project.parts) + 1)
    (box.project / "a").mkdir()
    with subprocess.Popen([sys.executable, "-c", renaming], cwd=elsewhere, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            for _turn in range(60):
                assert failure(box, ("tmpfs", path, (), 1)) == ("tmpfs", errno.EXDEV)
        finally:
            other.kill()


def test_a_failing_step_is_told_with_its_number(box: Box) -> None:
    for _number in range(2):
        box.run("true", box.plan())
    plan = box.plan()
    box.upper.rename(box.root / "elsewhere")
    with pytest.raises(StepFailed, match="staged view") as caught:
        box.run("true", plan)
    assert (caught.value.op, caught.value.number) == ("overlay", errno.ENOENT)
    (box.root / "elsewhere").rename(box.upper)
    with pytest.raises(StepFailed, match="cannot work in") as caught:
        box.run("true", box.plan(cwd=os.fsencode(box.project / "missing")))
    assert caught.value.op == "cwd"
    with pytest.raises(StepFailed, match="cannot work in"):  # a name that is no UTF-8, of bytes that a report escapes
        box.run("true", box.plan(cwd=os.fsencode(box.project) + b"/\xff\x1b" * 200))
    assert box.run("true", box.plan())[0].status == 0


def test_an_optional_tree_that_is_missing_is_left_out(box: Box) -> None:
    gone = os.fsencode(box.home / "gone")
    assert failure(box, ("bind", gone, b"t/gone", 1, True)) is None
    assert failure(box, ("bind", gone, b"t/gone", 1, False)) == ("bind", errno.ENOENT)
