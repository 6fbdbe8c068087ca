"""Limits on the command line: what is asked for, what is told, and what is refused."""

from __future__ import annotations

import json
import subprocess

import pytest

from conftest import Place, environment
from forked import run

pytestmark = [pytest.mark.both_users, pytest.mark.root]


def mudroom(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    return run(words, cwd=place.project, env=environment(place))


BIG = ("--", "sh", "-c", "exec head -c 20000 /dev/zero > big")


def test_what_a_limit_did_is_one_line(place: Place) -> None:
    done = mudroom(place, "run", "--keep", "--file-size", "10 kB", *BIG)
    assert done.returncode == 153
    assert "killed: file size, 10 kB" in done.stderr


def test_and_in_the_json(place: Place) -> None:
    done = mudroom(place, "exec", "--json", "--file-size", "10kB", *BIG)
    (one,) = json.loads(done.stdout)["limits"]
    assert (one["kind"], one["action"], one["limit"], one["text"]) == (
        "file_size", "killed", 10_000, "killed: file size, 10 kB",
    )  # fmt: skip


def test_the_policy_and_the_last_word(place: Place) -> None:
    place.write(".mudroom/policy.yaml", "limits:\n  open_files: 50\n  file_size: 1 MB\n")
    script = ("--", "sh", "-c", "ulimit -n; ulimit -f")
    assert mudroom(place, "run", *script).stdout.split()[0] == "50"
    assert mudroom(place, "run", "--open-files", "40", *script).stdout.split()[0] == "40"


def test_explain_says_what_would_hold_it(place: Place) -> None:
    done = mudroom(place, "run", "--explain", "--memory", "512M", "--cpus", "1.5", "--open-files", "64", "--", "true")
    assert done.returncode == 0
    assert "a control group of its own: memory 512 MiB, cpus 1.5" in done.stdout
    assert "limit of each process: open files = 64" in done.stdout


def test_what_is_no_limit(place: Place) -> None:
    for option, value, message in (
        ("--memory", "lots", "--memory is 'lots', which is not a size"),
        ("--memory", "1k", "at least 4 MiB"),
        ("--processes", "0", "--processes is 0, which is not a number from 1 on"),
        ("--cpus", "-1", "--cpus is '-1', which is not a number of processors"),
        ("--cpus", "nan", "--cpus is 'nan', which is not a number of processors"),
        ("--io", "fast", "--io is 'fast', which is not a size"),
    ):
        done = mudroom(place, "run", f"{option}={value}", "--", "true")
        assert done.returncode == 125 and message in done.stderr, done


def test_a_limit_that_cannot_be_held_is_refused_or_told(place: Place) -> None:
    """io is the one that most machines have no control group for."""
    done = mudroom(place, "run", "--io", "1GB", "--keep", "--", "touch", "x")
    if done.returncode == 0:  # it is held here
        assert "not enforced" not in done.stderr
    else:
        assert done.returncode == 125
        assert "a limit of io needs a control group with the controller io; found: " in done.stderr
        assert "limits: {missing: degrade}" in done.stderr
    place.write(".mudroom/policy.yaml", "limits: {missing: degrade}")
    degraded = mudroom(place, "run", "--io", "1GB", "--keep", "--", "touch", "x")
    assert degraded.returncode == 0
    assert ("io, 1 GB/s: not enforced" in degraded.stderr) == (done.returncode != 0)
