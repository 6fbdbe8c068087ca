"""Owners that are certainly gone, and owners that only may be."""

from __future__ import annotations

import os
import subprocess
import sys

from mudroom.ext.containers.engine.owner import Owner, is_gone, parse, started, this_process
from tiers import each

HERE = this_process()


def of(pid: int) -> Owner:
    return HERE._replace(pid=pid, started=started(pid) or 0)


def test_it_is_read_as_it_was_written() -> None:
    assert parse(str(HERE)) == HERE


@each("text", ["", "1:2:3", "x:1:b:n", "1:x:b:n", "1:2:3:4:5"])
def test_what_is_something_else_is_nobody(text: str) -> None:
    assert parse(text) is None


def test_who_lives_is_not_gone() -> None:
    assert not is_gone(HERE, HERE, ended=True)
    assert not is_gone(of(os.getppid()), HERE, ended=True)


def test_another_process_with_the_same_number_is_another() -> None:
    assert is_gone(HERE._replace(started=HERE.started - 1), HERE, ended=False)


def test_who_has_ended_is_gone_also_as_a_zombie() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    owner = of(child.pid)
    assert not is_gone(owner, HERE, ended=False)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(owner, HERE, ended=False)
    child.communicate()
    assert is_gone(owner, HERE, ended=False)


def test_of_another_namespace_nothing_is_known() -> None:
    other = HERE._replace(pid=1 << 22, namespaces="1-2")
    assert not is_gone(other, HERE, ended=False)
    assert not is_gone(other, HERE, ended=True)


def test_of_another_boot_or_machine_what_has_ended_is_nobodys() -> None:
    other = HERE._replace(boot="another")
    assert not is_gone(other, HERE, ended=False)
    assert is_gone(other, HERE, ended=True)
