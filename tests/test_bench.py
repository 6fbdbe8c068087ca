"""The benchmarks: what counts as worse, and that a rival which is missing is a row."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import reach
from bench.comparison import compare, kind_of, merged, ratios, told
from bench.limited import codex_sandbox
from bench.measure import (
    Against,
    Finding,
    Lap,
    Rival,
    Series,
    against,
    at_least_times,
    at_most_times,
    command,
    interleave,
    reason,
    unmeasured,
)
from bench.memory import RootReader, answer
from bench.place import QUICK, fill, new_place
from bench.table import lines, markdown, to_json
from bench.view import PlainOverlay

from box import if_namespaces
from mudroom.cli.main import VERBS, offered_verbs
from tiers import each

ROOT = Path(__file__).parent.parent
MACHINE = {"commit": "abc", "date": "2026-01-02", "user": "me (uid 1)", "processors": "2 x A B", "file system": "ext4"}


def document(*findings: Finding, **machine: str) -> dict[str, Any]:
    """As it is when it has been written and read again."""
    written: dict[str, Any] = json.loads(json.dumps(to_json({**MACHINE, **machine}, False, findings)))
    return written


def measured(ours: Iterable[float], theirs: Iterable[float], *, unit: str = "s", what: str = "true") -> Finding:
    others = (Against("bwrap", Series(tuple(theirs), unit)),)
    return Finding("command", what, Series(tuple(ours), unit), None, others)


QUIET = (10.0, 10.1, 10.2, 10.3, 10.4)
"""A noise of 2 %, so the least that is assumed counts."""


def times(factor: float, series: Iterable[float] = QUIET) -> list[float]:
    return [factor * value for value in series]


@each(("factor", "worse", "better"), [(1.0, 0, 0), (1.04, 0, 0), (1.06, 1, 0), (3.0, 1, 0), (0.96, 0, 0), (0.9, 0, 1)])
def test_a_ratio_is_worse_beyond_the_noise(factor: float, worse: int, better: int) -> None:
    comparison = compare(document(measured(QUIET, QUIET)), document(measured(times(factor), QUIET)))
    assert (len(comparison.worse), len(comparison.better)) == (worse, better)
    assert comparison.same == 1 - worse - better


@pytest.mark.parametrize("factor", [0.2, 1.0, 7.0])
def test_a_slow_machine_slows_both(factor: float) -> None:
    """Ratios are compared, not times."""
    comparison = compare(document(measured(QUIET, QUIET)), document(measured(times(factor), times(factor))))
    assert comparison == ((), (), 1, ())


NOISY = (10.0, 12.0, 15.0, 18.0, 30.0)
"""The median is half again the best."""


@pytest.mark.parametrize("where", ["before", "now", "rival"])
def test_noise_of_either_run_or_rival_counts(where: str) -> None:
    before = measured(NOISY if where == "before" else QUIET, QUIET)
    ours, theirs = (NOISY if where == "now" else QUIET), (NOISY if where == "rival" else QUIET)
    assert not compare(document(before), document(measured(times(1.3, ours), theirs))).worse
    assert compare(document(before), document(measured(times(4, ours), theirs))).worse


def test_one_slow_round_is_not_worse() -> None:
    """The medians differ, or the best values: never one of them alone."""
    disturbed = (10.0, 12.0, 12.0, 12.0, 12.0)
    assert not compare(document(measured(QUIET, QUIET)), document(measured(disturbed, QUIET))).worse


def test_the_whole_spread_counts_of_few_values() -> None:
    few = measured((10.0, 13.0), QUIET)
    assert not compare(document(few), document(measured(times(1.25), QUIET))).worse
    assert compare(document(few), document(measured(times(1.5), QUIET))).worse


@pytest.mark.parametrize(("factor", "worse", "better"), [(0.5, 1, 0), (2.0, 0, 1)])
def test_more_is_better_of_a_rate(factor: float, worse: int, better: int) -> None:
    before = document(measured(QUIET, QUIET, unit="MB/s"))
    comparison = compare(before, document(measured(times(factor), QUIET, unit="MB/s")))
    assert (len(comparison.worse), len(comparison.better)) == (worse, better)


def test_the_worst_comes_first_and_is_told() -> None:
    before = document(measured(QUIET, QUIET, what="a"), measured(QUIET, QUIET, what="b"))
    now = document(measured(times(1.5), QUIET, what="a"), measured(times(4), QUIET, what="b"))
    comparison = compare(before, now)
    assert [change.name for change in comparison.worse] == ["b, over bwrap", "a, over bwrap"]
    text = "\n".join(told(comparison, before))
    assert "abc of 2026-01-02, measured as me" in text
    assert "worse   b, over bwrap: 1.00x -> 4.00x (noise 5%)" in text
    assert "2 worse, 0 better, 0 the same" in text


@pytest.mark.parametrize(
    "gone",
    [
        Finding(
            "command", "true", Series(QUIET), None, (Against("bwrap", Series(()), None, "bwrap is not installed"),)
        ),
        unmeasured("command", "true", "bwrap is not installed")._replace(others=(Against("bwrap", Series(QUIET)),)),
    ],
)
def test_what_cannot_be_measured_any_more_is_named(gone: Finding) -> None:
    comparison = compare(document(measured(QUIET, QUIET)), document(gone))
    assert comparison.gone == ("true, over bwrap: bwrap is not installed",)
    assert not ratios(document(gone))


def test_a_part_that_was_not_run_is_neither_worse_nor_gone() -> None:
    assert compare(document(measured(QUIET, QUIET)), document()) == ((), (), 0, ())
    assert compare(document(), document(measured(QUIET, QUIET))) == ((), (), 0, ())


@pytest.mark.parametrize("theirs", [(0.0,), (0.0, 1.0)])
def test_nothing_is_divided_by_nothing(theirs: tuple[float, ...]) -> None:
    now = Finding("memory", "m", Series((1.0,), "MB"), None, ())._replace(
        others=(Against("none", Series(theirs, "MB")),)
    )
    stored = document(now._replace(others=()))
    stored["findings"][0]["against"] = [{"name": "none", "unit": "MB", "median": 0, "min": 0, "max": 1, "measured": 1}]
    assert not ratios(stored)


def test_a_run_of_one_part_keeps_the_stored_others() -> None:
    before = merged(None, document(measured(QUIET, QUIET, what="a"), measured(QUIET, QUIET, what="b")))
    stored = merged(before, document(measured(times(2), QUIET, what="b"), commit="def"))
    rows = {finding["what"]: (finding["median"], finding["commit"]) for finding in stored["findings"]}
    assert rows == {"a": (10.2, "abc"), "b": (20.4, "def")}
    assert stored["machine"]["commit"] == "def"


def test_the_file_of_a_kind_of_machine() -> None:
    assert kind_of(MACHINE) == "2-x-a-b-ext4"
    odd = kind_of({"processors": "4 x ../.. (R)/\n", "file system": ""})
    assert "/" not in odd and "\n" not in odd and len(kind_of({"processors": "x" * 999, "file system": "y"})) <= 100


# --- rivals that are missing ---


def lap(name: str, seconds: float = 1.0) -> Callable[[], list[Lap]]:
    return lambda: [(name, seconds)]


def failing(*errors: BaseException | None) -> Callable[[], list[Lap]]:
    """A contestant that fails in these rounds."""
    left = list(errors)

    def measure() -> list[Lap]:
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return [("rival", 1.0)]

    return measure


NOT_FOUND = FileNotFoundError(2, "No such file or directory", "no-such-program")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NOT_FOUND, "no-such-program is not installed"),
        (PermissionError(13, "Permission denied", "no-such-program"), "no-such-program is not installed"),
        (subprocess.CalledProcessError(3, ["/usr/bin/tool", "x"]), "tool failed with exit code 3"),
        (
            subprocess.CalledProcessError(3, ["tool"], None, b"WARNING: going on\ntool: no helper\n"),
            "tool failed with exit code 3: tool: no helper",
        ),
        (RuntimeError("two\nlines"), "RuntimeError: two lines"),
    ],
)
def test_a_missing_rival_is_a_row(error: Exception, why: str) -> None:
    found = interleave([lap("ours"), Rival(failing(error), "rival"), lap("other", 2)], 3)
    assert found["ours"].values == (1.0,) * 3
    finding = Finding("b", "what", found["ours"], None, against(found, ["rival", "other", "never"]))
    rows = [line.split("  ")[0].strip() + "|" + line for line in lines(finding)]
    assert len(rows) == 3
    assert f"not measured: {why}" in rows[1]
    assert "0.50x" in rows[2]
    assert why in json.dumps(to_json(MACHINE, False, [finding]))


def test_codex_has_its_home_outside_its_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As codex 0.171 demands."""
    program = tmp_path / "bin/codex"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\ncase "$HOME" in "${TMPDIR:-/tmp}"/*) echo "Refusing" >&2; exit 1; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("MUDROOM_RIVALS", str(program.parent))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with new_place(os.fsencode(tmp_path), "place") as place:
        place.environ[b"TMPDIR"] = os.fsencode(tmp_path)
        assert [name for name, _seconds in codex_sandbox(place, "codex", "true")()] == ["codex"]
        with pytest.raises(subprocess.CalledProcessError) as caught:
            command([str(program)], env=place.environ)
    assert reason(caught.value) == "codex failed with exit code 1: Refusing"


def test_a_rival_that_fails_later_is_not_half_measured() -> None:
    found = interleave([lap("ours"), Rival(failing(None, None, NOT_FOUND), "rival")], 4)
    assert "rival" not in found and found.missing == {"rival": reason(NOT_FOUND)}


def test_what_is_our_own_may_not_fail() -> None:
    with pytest.raises(FileNotFoundError):
        interleave([failing(NOT_FOUND)], 2)


def test_the_table_of_readme() -> None:
    goal = {"bwrap": at_most_times(0.7), "gone": at_most_times(1)}
    others = (Against("bwrap", Series((2.0,)), goal["bwrap"]), Against("gone", Series(()), goal["gone"], "not there"))
    rate = (Against("squid", Series((10.0,), "MB/s"), at_least_times(0.7)),)
    rows = list(
        markdown(
            [
                Finding("reach", "a", Series((1.0,)), None, others),
                Finding("reach", "b", Series((5.0,), "MB/s"), None, rate),
                unmeasured("reach", "c", "no keeper"),
            ]
        )
    )
    assert rows[2:] == [
        "| a | 1.00 s | bwrap 2.00 s | 0.50x, 0.50x | ≤ 0.7x |",
        "| a | 1.00 s | gone: not measured, not there | | ≤ 1x |",
        "| b | 5.00 MB/s | squid 10.0 MB/s | **0.50x**, 0.50x | ≥ 0.7x |",
        "| c | not measured: no keeper | | | |",
    ]
    assert {row.count("|") - row.count("\\|") for row in rows} == {6}


def test_a_part_of_the_table_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_base: bytes, _scale: object) -> Iterable[Finding]:
        raise OSError(24, "Too many open files")

    def fine(_base: bytes, _scale: object) -> Iterable[Finding]:
        return [Finding("reach", "fine", Series((1.0,)))]

    for name in ("_session", "_library", "_at_once", "_whole_process", "_view", "_memory", "_landing"):
        monkeypatch.setattr(reach, name, fine)
    monkeypatch.setattr(reach, "_gate", broken)
    rows = list(reach.reach(b"", QUICK))
    assert [row.what for row in rows].count("fine") == 7
    assert [row.why for row in rows if row.why] == ["OSError: [Errno 24] Too many open files"]


@pytest.mark.both_users
@pytest.mark.root
@if_namespaces
def test_a_plain_overlay_of_the_kernel(tmp_path: Path) -> None:
    with new_place(os.fsencode(tmp_path), "plain") as place:
        fill(place.project, 3)
        layer = place.root + b"/layer-"
        with PlainOverlay(place.project, layer + b"1", place.environ) as plain:
            for name in ("one", "two"):
                assert plain.run(["sh", "-c", f"cp d0000/f000001.txt {name}; ls d0000 | wc -l"]) == "3\n"
            assert plain.run(["sh", "-c", "cmp one d0000/f000001.txt && echo same"]) == "same\n"
        with PlainOverlay(place.project, layer + b"2", place.environ) as plain:
            assert plain.run(["sh", "-c", "test -e one || echo none"]) == "none\n"
            with pytest.raises(RuntimeError):
                plain.run(["false"])
            with pytest.raises(RuntimeError):
                plain.run(["true"])
        assert os.listdir(place.project) == [b"d0000"]


def test_the_rows_of_the_gate_before_it_fails_count(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    def gate(_base: bytes, _scale: object) -> Iterator[Finding]:
        try:
            squid = Against("squid", Series((10.0,), "MB/s"))
            yield Finding("gate", "a tunnel, 64 MiB", Series((5.0,), "MB/s"), None, (squid,))
            raise OSError(24, "Too many open files")
        finally:
            ended.append(True)

    monkeypatch.setattr(reach, "gate", gate)
    tunnel, new = reach._gate(b"", QUICK)
    assert tunnel.others[0].budget is not None and not tunnel.met_against(tunnel.others[0])
    assert new.why == "OSError: [Errno 24] Too many open files"
    assert ended


def test_root_reads_for_another_user() -> None:
    ours, theirs = socket.socketpair()
    answering = threading.Thread(target=answer, args=(ours,))
    answering.start()
    reader = RootReader(theirs)
    size = reader.ask(os.getpid())
    assert size is not None and size > 1e6
    assert reader.ask(2**22 + 1) is None  # above every pid: proc_sys_kernel(5), pid_max
    reader.close()
    answering.join()
    ours.close()


NEEDED = ("sh", "cp", "rm", "sync", "true", "find", "grep", "uname")


@pytest.mark.deep
@pytest.mark.skipif(offered_verbs() != VERBS, reason="a satellite that is measured is absent")
@pytest.mark.slow
@pytest.mark.limit(400)
def test_a_run_without_any_rival(tmp_path: Path) -> None:
    """No bwrap, git or rsync on PATH. It is stored, and the next run is compared with it."""
    programs, results = tmp_path / "programs", tmp_path / "results"
    programs.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None
        os.symlink(found, programs / name)
    words = [sys.executable, "-m", "bench", "--quick", "--dir", str(tmp_path), "--results", str(results), "--write"]
    words += ["--json", str(tmp_path / "json"), "--only", "merge"]
    environ = {**os.environ, "PATH": str(programs)}
    done = [
        subprocess.run([*words, *more], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        for more in (["--only", "command", "--only", "modify"], [])
    ]
    for run in done:
        assert run.returncode == 0, run.stderr
        assert "Traceback" not in run.stdout + run.stderr
    for name in ("bwrap", "rsync", "git"):
        assert f"not measured: {name} is not installed" in done[0].stdout
    assert "nothing is stored for this kind of machine" in done[0].stdout
    assert "compared with unknown of " in done[1].stdout
    (stored,) = results.iterdir()
    document = json.loads(stored.read_text())
    assert document["machine"]["user"] and document["machine"]["kernel"] and document["machine"]["processors"]
    whats = [finding["what"] for finding in document["findings"]]
    assert len(whats) == len(set(whats)) > 5
    assert json.loads((tmp_path / "json").read_text())["schema"] == document["schema"]
