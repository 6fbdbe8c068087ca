"""A crash leaves no core behind, and no crash handler of the host hears of it."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from box import KINDS, Box
from clocks import give_way
from mudroom.sandbox.client.launcher_client import LauncherClient

pytestmark = [pytest.mark.both_users, pytest.mark.alone]
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
CRASH = """
import os, resource, signal
try:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except (ValueError, OSError):
    pass
child = os.fork()
if not child:
    os.kill(os.getpid(), signal.SIGSEGV)
status = os.waitpid(child, 0)[1]
print(os.WTERMSIG(status), os.WCOREDUMP(status), *sorted(name for name in os.listdir(".") if "core" in name))
"""


def crash(box: Box, kind: str) -> str:
    plan = box.prepared(kind)
    return box.run(shlex.join([sys.executable, "-I", "-S", "-c", CRASH]), plan)[1]


@pytest.fixture
def a_box(tmp_path: Path, client: LauncherClient) -> Box:
    return Box(tmp_path, client)


@pytest.mark.skipif(CORE_PATTERN.read_text().startswith("@"), reason="this machine hands crashes to a socket")
@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_leaves_no_core(a_box: Box, kind: str) -> None:
    assert crash(a_box, kind) == "11 False\n"


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[Callable[[], bool]]:
    """A crash handler of the whole machine. Gives whether it has been called."""
    program, called, before = tmp_path / "handler", tmp_path / "called", CORE_PATTERN.read_text()
    program.write_text(f"#!/bin/sh\ncat >/dev/null\necho $1 >>{called}\n")
    program.chmod(0o755)
    CORE_PATTERN.write_text(f"|{program} %e")
    yield called.exists
    CORE_PATTERN.write_text(before)


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0 or "MUDROOM_OWN_MACHINE" not in os.environ,
    reason="sets kernel.core_pattern, so as root in a machine of our own: dev/vm --root",
)
@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_CORE)[1] == 0, reason="our own hard limit is 0: see doctor")
@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_starts_no_handler(a_box: Box, handler: Callable[[], bool], kind: str) -> None:
    assert crash(a_box, kind) == "11 False\n"
    assert not handler()
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    done = subprocess.run(
        [sys.executable, "-c", CRASH],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, unlimited),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "11 True\n", "so that the test can fail"
    while not handler():
        give_way()
