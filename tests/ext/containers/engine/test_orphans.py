"""Orphans in an engine's list, and directories of mudroom without a holder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from mudroom.errors import MudroomError
from mudroom.ext.containers.core.container import Engine
from mudroom.ext.containers.engine import box
from mudroom.ext.containers.engine.orphans import (
    hold,
    hold_below,
    make_held,
    orphans,
    rows,
    sweep_containers,
    sweep_directory,
)
from mudroom.ext.containers.engine.owner import beside, this_process
from mudroom.ext.containers.session.containers import provide_profile
from tiers import each

HERE = this_process()
GONE = HERE._replace(started=1)


def docker(name: str, owner: object, state: str = "running", label: str = "mudroom=0.1.0") -> str:
    return json.dumps({"ID": name, "State": state, "Labels": f"{label},mudroom.owner={owner},x=y"})


def podman(name: str, owner: object, state: str = "running") -> str:
    labels = {"mudroom": "0.1.0", "mudroom.owner": str(owner)}
    return json.dumps({"Id": name, "State": state, "Labels": labels})


def test_of_a_list_only_those_whose_owner_is_gone() -> None:
    lines = [
        docker("live", HERE), docker("dead", GONE), podman("dead2", GONE, "exited"), docker("made", GONE, "created"),
        docker("foreign", GONE._replace(namespaces="0-0")), docker("elsewhere", GONE._replace(boot="x")),
        docker("rebooted", GONE._replace(boot="x"), "exited"), docker("never", GONE._replace(boot="x"), "created"),
        docker("theirs", GONE, label="other=1"),
        json.dumps({"ID": "unowned", "State": "exited", "Labels": "mudroom=1"}),
    ]  # fmt: skip
    assert orphans("\n".join(lines).encode(), HERE) == ["dead", "dead2", "made", "rebooted", "never"]
    far = orphans("\n".join(lines).encode(), HERE, remote=True)
    assert far == ["dead", "dead2", "made", "rebooted"], "what another machine has made it may be about to start"


def test_a_list_that_is_one_array_over_many_lines_is_read_too() -> None:
    listed = json.dumps([json.loads(podman(name, GONE, "created")) for name in ("one", "two")], indent=2)
    assert orphans(listed.encode(), HERE) == ["one", "two"]


@each("listed", [b"", b"\xff\n", b"nonsense\n[]\n{}\n", b'{"ID": 3, "Labels": "mudroom=1"}'])
def test_what_cannot_be_read_is_left_alone(listed: bytes) -> None:
    assert list(rows(listed)) == []


def test_an_orphan_that_somebody_else_is_removing_is_no_failure(tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\n[ $1 = ps ] && echo '{docker('dead', GONE)}' && exit 0\necho busy >&2; exit 1\n")
    program.chmod(0o755)
    assert sweep_containers(Engine("docker", os.fsencode(program)), {}, HERE) == 1
    program.write_text("#!/bin/sh\necho 'Cannot connect' >&2; exit 1\n")
    with pytest.raises(MudroomError, match="Cannot connect"):
        sweep_containers(Engine("docker", os.fsencode(program)), {}, HERE)


def test_a_directory_is_swept_when_nobody_holds_it(tmp_path: Path) -> None:
    parent = os.fsencode(tmp_path)
    held = make_held(parent + b"/door", 0o755)
    second = hold(parent + b"/door")
    assert sweep_directory(parent) == 0
    os.close(held)
    assert sweep_directory(parent) == 0
    os.close(second)
    (tmp_path / "door" / "s").touch()
    (tmp_path / "file").touch()
    os.symlink("door", tmp_path / "link")
    assert sweep_directory(parent, older=3600) == 0, "it is young"
    assert sweep_directory(parent) == 1
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]
    assert sweep_directory(parent + b"/nothing") == 0


def test_what_is_held_below_is_not_taken_away_meanwhile(tmp_path: Path) -> None:
    """A removed directory is reported as gone, and its user makes it again."""
    place = os.fsencode(tmp_path / "runtime")
    os.mkdir(place)
    held = hold_below(place)
    assert sweep_directory(os.fsencode(tmp_path)) == 0
    os.close(held)
    assert sweep_directory(os.fsencode(tmp_path)) == 1
    with pytest.raises(FileNotFoundError):
        hold_below(place)


def test_a_door_is_held_until_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, swept = os.fsencode(tmp_path / "door"), []
    rmdir = os.rmdir

    def looked_at(path: bytes) -> None:
        swept.append(sweep_directory(os.fsencode(tmp_path)))
        rmdir(path)

    descriptor = make_held(place, 0o755)
    monkeypatch.setattr(os, "rmdir", looked_at)
    box._remove(place, descriptor)
    monkeypatch.undo()
    assert swept == [0]
    assert not os.path.exists(place)
    descriptor = make_held(place, 0o755)
    os.rmdir(place)
    box._remove(place, descriptor)  # another process was faster


def test_a_runtime_that_is_swept_meanwhile_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []

    def provide(directory: bytes) -> bytes:
        made.append(directory + b"/runtime")
        if len(made) > 1:
            os.mkdir(made[-1])
        return made[-1]

    monkeypatch.setattr(box, "provide", provide)
    path, held = box._held_runtime(os.fsencode(tmp_path))
    assert (len(made), path) == (2, made[0])
    assert sweep_directory(os.fsencode(tmp_path)) == 0
    os.close(held)


def test_names_beside_are_of_one_thread() -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: beside(b"x"), range(200)))
    assert len(set(found)) == 200


def test_the_filter_is_written_by_many_threads_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(10):
            state = os.fsencode(tmp_path) + b"/%d" % number
            places = set(pool.map(partial(provide_profile, nested=True), [state] * 8))
            assert os.listdir(state + b"/runtime") == [os.path.basename(place) for place in places]


def test_who_is_killed_holds_nothing(tmp_path: Path) -> None:
    script = (
        "import os, sys; from mudroom.ext.containers.engine.orphans import make_held; "
        "make_held(os.fsencode(sys.argv[1]), 0o755); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "door")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert sweep_directory(os.fsencode(tmp_path)) == 0
    holder.kill()
    holder.communicate()
    assert sweep_directory(os.fsencode(tmp_path)) == 1
