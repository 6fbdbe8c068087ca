"""Renames and links between directories stay possible under the ruleset of newer kernels.

A ruleset that handles any file right forbids them unless a rule permits it (landlock(7), LANDLOCK_ACCESS_FS_REFER). The
ruleset of ABI 9 is tried here without the right that this kernel may not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from box import Box, if_namespaces
from mudroom.core.confinement.plan import Plan
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.sandbox.host.host import landlock_abi
from mudroom.sandbox.linux.plan import FS_RESOLVE_UNIX, filesystem_rights

pytestmark = [
    pytest.mark.both_users,
    pytest.mark.root,
    if_namespaces,
    pytest.mark.skipif(landlock_abi() < 6, reason="no Landlock that level 1 uses beside namespaces"),
]
SCRIPT = """
mkdir -p a b && echo text > a/file && mkdir a/directory && touch a/directory/below
mv a/file b/file && ln b/file a/link && cat a/link
/usr/bin/python3 -c 'import os; os.rename("a/link", "b/renamed"); os.rename("b/renamed", "a/link")'
mkdir -p /tmp/x /tmp/y && echo more > /tmp/x/one
/usr/bin/python3 -c 'import os; os.rename("/tmp/x/one", "/tmp/y/one"); os.link("/tmp/y/one", "/tmp/x/two")'
cat /tmp/x/two
mv /tmp/y/one b/moved && cat b/moved
"""


@pytest.fixture
def box(tmp_path: Path, client: LauncherClient) -> Iterator[Box]:
    yield Box(tmp_path, client)


def as_of_the_ninth_abi(box: Box) -> Plan:
    handled_here = filesystem_rights(landlock_abi())
    plan = box.plan(landlock_abi=9)

    def known(step: tuple[object, ...]) -> tuple[object, ...]:
        if step[0] != "landlock":
            return step
        _op, handled, net, scoped, rules, flags = step
        assert isinstance(handled, int) and isinstance(rules, tuple)
        assert handled & FS_RESOLVE_UNIX
        kept = tuple((path, access & handled_here) for path, access in rules if access & handled_here)
        return ("landlock", handled & handled_here, net, scoped, kept, flags)

    return plan._replace(steps=tuple(known(step) for step in plan.steps))


def test_files_move_between_directories(box: Box) -> None:
    ended, said = box.run(SCRIPT, as_of_the_ninth_abi(box))
    assert ended.status == 0, said
    assert said == "text\nmore\nmore\n"
