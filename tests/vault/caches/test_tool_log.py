"""The log that a failed tool names: found in the pools of the caches, on the host."""

from __future__ import annotations

import os
from pathlib import Path

from mudroom.vault.caches.tool_log import newest_log


def test_the_newest_log_of_any_pool_since_the_command_began(tmp_path: Path) -> None:
    cache = os.fsencode(tmp_path)
    assert newest_log(cache, 0) is None
    paths = [tmp_path / "host" / pool / "npm/_logs" / f"{pool}-debug-0.log" for pool in ("user", "agent-1")]
    for seconds, path in zip((1000, 2000), paths, strict=True):
        path.parent.mkdir(parents=True)
        path.write_text("x")
        os.utime(path, (seconds, seconds))
    (paths[1].parent / "link.log").symlink_to("/etc/passwd")
    (tmp_path / "elsewhere").symlink_to("/")
    assert newest_log(cache, 1500) == os.fsencode(paths[1])
    assert newest_log(cache, 500) == os.fsencode(paths[1])
    assert newest_log(cache, 2500) is None, "it is of an earlier command"
