"""What programs find in the view that they compare with what they have stored outside, and what looking at it costs.

git keeps the size, times, number and owner of each file in its index, and reads a file again where one of them differs.
So a view that showed another number would cost each ``git status`` all contents.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Place
from mudroom.session import Session

pytestmark = pytest.mark.both_users

FILES = 40
STATUS = "GIT_TRACE2_EVENT_NESTING=9 GIT_TRACE2_EVENT=2 git status --porcelain 2>&1"
"""git prints what it has done, api-trace2 in its documentation; descriptor 2 is told apart by its form."""
STAMPS = r"find . -path ./.git -prune -o -type f -printf '%p %i %s %T@ %C@ %m %U %G %n\n' | sort"
COMMANDS = 6
"""The last of them runs in a mount that stands."""


@pytest.fixture(params=["beside the project", "on another file system"])
def repository(request: pytest.FixtureRequest, place: Place) -> Iterator[Place]:
    """A committed project whose index git believes, with the fork's own files beside it, or elsewhere."""
    for number in range(FILES):
        place.write(f"d{number % 4}/f{number}", f"{number}\n" * (number + 1))
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "t"]):
        subprocess.run(["git", "-C", place.project, *words], check=True)
    old = time.time() - 10  # git reads again what is as young as its index
    for path in place.project.rglob("d*/f*"):
        os.utime(path, (old, old))
    subprocess.run(["git", "-C", place.project, "update-index", "-q", "--refresh"], check=True)
    if request.param == "beside the project":
        yield place
        return
    elsewhere = Path(tempfile.mkdtemp(prefix="mudroom-view-", dir="/dev/shm"))
    place.state = elsewhere
    yield place
    place.close()
    shutil.rmtree(elsewhere, ignore_errors=True)


def shell(session: Session, script: str, fork: str) -> str:
    result = session.run([b"sh", b"-c", script.encode()], fork=fork)
    assert result.exit_code == 0, result.stderr
    return result.stdout.decode()


def contents_read(text: str) -> int:
    """Return how many files git has read to compare them with its index."""
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    (scans,) = [event["value"] for event in events if event.get("key") == "refresh/sum_scan"]
    return int(scans)


def outside(place: Place, script: str) -> str:
    return subprocess.run(["sh", "-c", script], cwd=place.project, check=True, capture_output=True, text=True).stdout


def test_git_reads_no_file_that_it_would_not_read_outside(repository: Place) -> None:
    assert contents_read(outside(repository, STATUS)) == 0
    session = repository.session()
    for _time in range(COMMANDS):
        assert contents_read(shell(session, STATUS, "f")) == 0
    assert contents_read(shell(session, STATUS, "new")) == 0
    shell(session, "echo more >> d0/f0", "f")
    assert contents_read(shell(session, STATUS, "f")) <= 1
    repository.write("d1/f1", "changed\n")
    assert contents_read(outside(repository, STATUS)) <= 1
    assert contents_read(shell(session, STATUS, "f")) <= 2


def test_a_file_has_the_stamps_that_it_has_outside(repository: Place) -> None:
    session, expected = repository.session(), outside(repository, STAMPS)
    assert expected.count("\n") == FILES
    for _time in range(COMMANDS):
        assert shell(session, STAMPS, "f") == expected
    assert shell(session, STAMPS, "new") == expected


def test_looking_leaves_nothing_in_the_layer(repository: Place) -> None:
    """A file that was only read is not copied. git makes and removes its lock, so its directory is."""
    session = repository.session()
    for _time in range(COMMANDS):
        shell(session, f"{STATUS}; {STAMPS}; grep -r nothing . ; find .; ls -lR", "f")
    upper = Path(os.fsdecode(session.vault.fork("f").upper))
    assert [path.name for path in upper.rglob("*") if path != upper / ".git"] == []
    assert list(session.changes.diff("f")) == []
