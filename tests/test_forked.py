"""A fork of the process that has the modules is the process that ``python -m mudroom`` is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Place, environment
from forked import popen, run

LOOK = "umask; pwd; cat; tty; ulimit -a; env | grep -v '^_=' | sort; ls /proc/self/fd | wc -l; echo said >&2; exit 3"


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["no-such-verb"],
        ["exec", "--fork", "f", "--no-such-option"],
        ["run", "--no", "--", "sh", "-c", LOOK],
    ],
)
def test_it_says_the_same(place: Place, words: list[str]) -> None:
    variables = environment(place, TZ="Asia/Tokyo", TMPDIR=str(place.root), PYTHONPATH="/nowhere")
    before = os.umask(0o027)
    try:
        ours = run(words, cwd=place.project, env=variables, input="given\n")
        theirs = subprocess.run(
            [sys.executable, "-m", "mudroom", *words],
            cwd=place.project, env=variables, input="given\n", capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        os.umask(before)
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_it(place: Place, number: signal.Signals) -> None:
    words, variables = ["exec", "--fork", "f", "--", "sh", "-c", "echo up; exec sleep 1000"], environment(place)
    program = [sys.executable, "-m", "mudroom", *words]
    starts = (
        lambda: popen(words, cwd=place.project, env=variables, stdout=subprocess.PIPE),
        lambda: subprocess.Popen(program, cwd=place.project, env=variables, stdout=subprocess.PIPE),
    )
    codes = []
    for start in starts:
        with start() as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n" and process.poll() is None
            process.send_signal(number)
            codes.append(process.wait(60))
    assert codes[0] == codes[1] == (-number if number == signal.SIGKILL else 128 + number)


def test_stories_find_every_module_without_a_vendor() -> None:
    """Stories of reboots import all modules before they fork; those of other frameworks need the frameworks."""
    done = subprocess.run(
        [sys.executable, "-c", "import story; story.import_all()"],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).with_name("systems"))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
