"""The log that a failed tool names: found in the pools of the caches, on the host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom.vault.caches.tool_log import newest_log

NPM = [b"npm", b"ci"]


def test_the_newest_log_of_any_pool_since_the_command_began(tmp_path: Path) -> None:
    cache = os.fsencode(tmp_path)
    assert newest_log(cache, 0, NPM) is None
    paths = [tmp_path / "host" / pool / "npm/_logs" / f"{pool}-debug-0.log" for pool in ("user", "agent-1")]
    for seconds, path in zip((1000, 2000), paths, strict=True):
        path.parent.mkdir(parents=True)
        path.write_text("x")
        os.utime(path, (seconds, seconds))
    (paths[1].parent / "link.log").symlink_to("/etc/passwd")
    (tmp_path / "elsewhere").symlink_to("/")
    assert newest_log(cache, 1500, NPM) == os.fsencode(paths[1])
    assert newest_log(cache, 500, NPM) == os.fsencode(paths[1])
    assert newest_log(cache, 2500, NPM) is None, "it is of an earlier command"


@pytest.mark.parametrize(
    ("argv", "slack"),
    [
        ([b"npm", b"ci"], True),
        ([b"/usr/bin/npx", b"x"], True),
        ([b"sh", b"-c", b"cd a&&npm ci"], True),
        ([b"false"], False),
        ([b"make"], False),
        ([b"ls", b"npmrc"], False),
    ],
)
def test_a_command_that_is_not_the_tool_has_no_log_of_an_earlier_one(
    tmp_path: Path, argv: list[bytes], slack: bool
) -> None:
    log = tmp_path / "host/user/npm/_logs/debug-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("x")
    os.utime(log, (1000, 1000))
    found = os.fsencode(log)
    assert newest_log(os.fsencode(tmp_path), 1001, argv) == (found if slack else None)
    assert newest_log(os.fsencode(tmp_path), 999, argv) == found, "make runs npm, too"
