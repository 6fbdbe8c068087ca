"""Hidden files where nothing can be covered: the entries around them are named."""

from __future__ import annotations

import os
from pathlib import Path

from mudroom.core.confinement.spec import Bind
from mudroom.sandbox.host.host import without


def test_a_link_to_what_is_above_a_hidden_file_is_left_out(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    (etc / "ssh").mkdir(parents=True)
    for name in ("shadow", "hosts", "ssh/key", "ssh/config"):
        (etc / name).touch()
    for name, target in (("up", "."), ("top", "/"), ("same", "shadow"), ("fine", "hosts"), ("ssh/above", "..")):
        (etc / name).symlink_to(target)
    hidden = [os.fsencode(etc / "shadow"), os.fsencode(etc / "ssh/key")]
    shown = [os.path.relpath(os.fsdecode(bind.path), etc) for bind in without([Bind(bytes(etc), bytes(etc))], hidden)]
    assert shown == ["fine", "hosts", "ssh/config"]
