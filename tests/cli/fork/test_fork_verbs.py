"""Forks, checkpoints, comparisons and mounts as a user meets them: whole processes, their output, their exit codes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.core.registry import is_installed
from test_vault_verb import Cli


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("file", "one\n")
    place.write("d/x", "x\n")
    return Cli(place)


def _exec(cli: Cli, fork: str, script: str) -> dict[str, Any]:
    done = cli("exec", "--json", "--fork", fork, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_line_of_work(cli: Cli) -> None:
    assert cli.json("fork", "new", "try")["base"] == "live"
    result = _exec(cli, "try", "echo two >> file; rm d/x; echo $PWD")
    automatic = result["checkpoint"]
    assert automatic == "before-echo-two-file-rm-d-x-echo-PWD-1"
    assert result["schema"] == "mudroom.result/1"
    assert result["fork"] == "try"
    assert result["applied"] is None
    assert result["stdout"] == f"{cli.place.project}\n"
    assert {one["path"]: one["change"] for one in result["changes"]["files"]} == {"d/x": "deleted", "file": "modified"}
    assert cli.json("checkpoint", "green", "--fork", "try")["checkpoint"] == "green"
    _exec(cli, "try", "echo three >> file; echo new > new")
    assert "+three\n" in cli("diff", "try@green", "try").stdout
    assert "+two\n" not in cli("diff", "try@green", "try").stdout
    looked = cli.json("rollback", "green", "--fork", "try", "--no")
    assert looked["done"] is False
    assert {one["path"] for one in looked["changes"]["files"]} == {"file", "new"}
    assert cli("rollback", "green", "--fork", "try").returncode == 125, "there is no terminal to ask on"
    done = cli.json("rollback", "green", "--fork", "try", "--yes")
    assert done["undo"] == "rollback-1"
    assert _exec(cli, "try", "cat file; ls")["stdout"] == "one\ntwo\nd\nfile\n"
    cli("rollback", "rollback-1", "--fork", "try", "--yes")
    assert _exec(cli, "try", "cat file")["stdout"] == "one\ntwo\nthree\n"
    names = [one["checkpoint"] for one in cli.json("checkpoint", "--fork", "try")["checkpoints"]]
    assert names == [automatic, "green", "rollback-1"]
    assert (cli.place.project / "file").read_text() == "one\n"


def test_without_a_name_it_goes_back_to_the_last_checkpoint(cli: Cli) -> None:
    _exec(cli, "try", "rm -r d")
    assert cli("rollback", "--fork", "try").returncode == 125, "there is no terminal to ask on"
    done = cli.json("rollback", "--fork", "try", "--yes")
    assert (done["checkpoint"], done["undo"]) == ("before-rm-r-d-1", "rollback-1")
    assert cli("diff", "try").stdout == ""


def test_former_words_are_the_verbs_that_do_it(cli: Cli) -> None:
    for _time in range(2):
        prepared = cli.json("proxy", "prepare", "--fork", "try", "--agent", "coder")
        assert (prepared["schema"], prepared["fork"], prepared["level"]) == ("mudroom.result/1", "try", 1)
    _exec(cli, "try", "rm -r d")
    assert cli("proxy", "inspect", "--fork", "try", "--json").stdout == cli("diff", "try", "--json").stdout
    assert cli.json("proxy", "rollback", "--fork", "try")["checkpoint"] == "before-rm-r-d-1"
    shim = "hook shell" if is_installed("agents") else "shell"
    for words, told in (
        (["proxy", "prepare", "--from", "try"], "exec has no option --from (mudroom fork new NAME --from FORK"),
        (["proxy"], "there is no verb 'proxy' (did you mean mudroom exec?)"),
        (["shell-shim", "/x"], f"there is no verb 'shell-shim' (did you mean mudroom {shim}?)"),
    ):
        done = cli(*words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1)
        assert told in done.stderr


def test_forks_of_forks_do_not_see_each_other(cli: Cli) -> None:
    _exec(cli, "one", "echo one > own")
    cli("checkpoint", "point", "--fork", "one")
    _exec(cli, "one", "echo later >> own")
    cli("fork", "new", "two", "--from", "one")
    cli("fork", "new", "three", "--from", "one@point")
    _exec(cli, "one", "rm own")
    assert _exec(cli, "two", "cat own")["stdout"] == "one\nlater\n"
    assert _exec(cli, "three", "cat own")["stdout"] == "one\n"
    assert [row["fork"] for row in cli.json("fork", "ls")["forks"]] == ["one", "two", "three"]
    compared = cli.json("diff", "three", "two")
    assert [one["path"] for one in compared["changes"]["files"]] == ["own"]
    assert "-one\n" in cli("diff", "three", "now").stdout
    assert cli("diff", "base", "three").stdout == cli("diff", "three").stdout
    cli("fork", "rename", "three", "four")
    assert _exec(cli, "four", "cat own")["stdout"] == "one\n"


def test_a_snapshot_stays_as_it_was(cli: Cli) -> None:
    assert cli.json("fork", "new", "frozen", "--snapshot")["base"] != "live"
    cli.place.write("file", "the user goes on\n")
    assert _exec(cli, "frozen", "cat file; echo mine >> d/x")["stdout"] == "one\n"
    assert cli("apply", "frozen", "--yes").returncode == 0
    assert (cli.place.project / "d/x").read_text() == "x\nmine\n"
    assert (cli.place.project / "file").read_text() == "the user goes on\n"
    _exec(cli, "frozen", "echo mine > file")
    assert cli("apply", "frozen", "--yes").returncode == 3
    assert (cli.place.project / "file").read_text() == "the user goes on\n"


def test_removing_a_fork_with_work_in_it(cli: Cli) -> None:
    _exec(cli, "try", "echo x > y")
    refused = cli("fork", "rm", "try")
    assert refused.returncode == 125
    assert "holds 1 changed files that were not applied" in refused.stderr
    assert cli("fork", "rm", "try", "--yes").returncode == 0
    assert cli.json("fork", "ls")["forks"] == []
    vault = next((cli.place.state / "vaults").iterdir())
    assert os.listdir(vault / "layers") == []


def test_bad_input_is_one_line(cli: Cli) -> None:
    cli("fork", "new", "try")
    cli("checkpoint", "point", "--fork", "try")
    for words, message in (
        (["fork", "new", "a/../b"], "cannot be the name of a fork"),
        (["fork", "new", "x" * 65], "cannot be the name of a fork"),
        (["fork", "new", "a b"], "cannot be the name of a fork"),
        (["fork", "new", "try"], "there is a fork named try already"),
        (["fork", "new"], "fork new takes 1 name, 0 given ("),
        (["fork", "new", "y", "--from", "nope"], "there is no fork named nope"),
        (["fork", "new", "y", "--from", "try@nope"], "try has no checkpoint named nope"),
        (
            ["fork", "new", "y", "--from", "try", "--snapshot"],
            "--snapshot is not for --from: a fork of a fork has the base of that fork",
        ),
        (["fork", "rename", "try", "../up"], "cannot be the name of a fork"),
        (["fork", "rm", "nope"], "there is no fork named nope"),
        (["checkpoint", "a b", "--fork", "try"], "cannot be the name of a checkpoint"),
        (["checkpoint", "point", "--fork", "try"], "has a checkpoint named point already"),
        (["checkpoint", "point", "--fork", "nope"], "there is no fork named nope"),
        (["rollback", "nope", "--fork", "try", "--yes"], "has no checkpoint named nope"),
        (["diff", "base", "now"], "only be compared through a fork"),
        (["diff", "try@nope", "try"], "has no checkpoint named nope"),
        (["exec", "--fork", "../x", "--", "true"], "cannot be the name of a fork"),
        (["exec", "--fork", "try"], "no command was given"),
        (["mount", "nope"], "there is no fork named nope (mudroom fork new nope)"),
        (["unmount", "try"], "try is not mounted"),
        (["vault", "gc", "--forks", "soon"], "soon"),
    ):
        done = cli(*words)
        assert (done.returncode, done.stderr.count("\n")) == (125, 1), (words, done.stderr)
        assert message in done.stderr, words


def kinds() -> list[str]:
    found = ["copy"]
    if shutil.which("fuse-overlayfs") and os.access("/dev/fuse", os.R_OK | os.W_OK):
        found.append("fuse")
    return found + (["overlay"] if os.geteuid() == 0 else [])


@pytest.mark.both_users
@pytest.mark.parametrize("kind", ["copy", "fuse", "overlay"])
def test_a_mounted_fork_is_the_one_truth(cli: Cli, kind: str) -> None:
    if kind not in kinds():
        pytest.skip(f"a mount by {kind} cannot be had here")
    _exec(cli, "try", "echo two >> file")
    place = cli.place.root / "here"
    report = cli.json("mount", "try", str(place), "--kind", kind)
    assert report == {
        "schema": "mudroom.mount/1", "fork": "try", "kind": kind, "writable": True, "path": str(place),
    }  # fmt: skip
    assert (place / "file").read_text() == "one\ntwo\n"
    (place / "made").write_text("by an editor\n")
    (place / "d/x").unlink()
    _exec(cli, "try", "cat made >> file; echo more > more")
    assert (place / "file").read_text() == "one\ntwo\nby an editor\n"
    look = cli.json("diff", "try")
    assert {one["path"] for one in look["changes"]["files"]} == {"file", "made", "more", "d/x"}
    assert (look["in_use"], look["reviewed"][:5]) == (f"is mounted at {place}", "look-")
    assert cli("checkpoint", "point", "--fork", "try").returncode == 0
    assert cli.json("mount", "try") == report
    done = cli("discard", "try")
    assert done.returncode == 125
    assert f"try is mounted at {place}" in done.stderr
    assert "mudroom unmount try" in done.stderr
    assert cli.json("mount")["mounts"] == [
        {key: report[key] for key in report if key != "schema"} | {"state": "mounted"}
    ]
    if kind != "copy":
        with open(place / "made") as _held:
            busy = cli("unmount", "try")
            assert busy.returncode == 125
            assert "cannot be unmounted" in busy.stderr
    back = cli.json("unmount", "try")
    assert {one["path"] for one in back["changes"]["files"]} == {"file", "made", "more", "d/x"}
    assert not place.exists()
    refused = cli("apply", "try", "--yes")
    assert refused.returncode == 4 and "that was a look, not a review" in refused.stderr
    assert cli.json("diff", "try")["in_use"] is None
    assert cli("apply", "try", "--yes").returncode == 0
    assert (cli.place.project / "made").read_text() == "by an editor\n"


@pytest.mark.both_users
@pytest.mark.parametrize("kind", ["copy", "fuse", "overlay"])
def test_a_mount_to_look_at(cli: Cli, kind: str) -> None:
    if kind not in kinds():
        pytest.skip(f"a mount by {kind} cannot be had here")
    _exec(cli, "try", "echo two >> file")
    path = Path(cli.json("mount", "try", "-r", "--kind", kind)["path"])
    assert (path / "file").read_text() == "one\ntwo\n"
    if kind != "copy":
        with pytest.raises(OSError, match=r"[Rr]ead-only"):
            (path / "new").write_text("x")
    back = cli.json("unmount", "try")
    assert {one["path"] for one in back["changes"]["files"]} == {"file"}
    taken = cli("mount", "try", str(cli.place.project))
    assert taken.returncode == 125
    assert "lies in the project" in taken.stderr
    own = cli.place.state / "vaults/x"
    taken = cli("mount", "try", str(own))
    assert taken.stderr == f"mudroom: {own} lies in mudroom's own files (name a directory outside of it, or none)\n"
    assert not own.exists()
    (cli.place.root / "full").mkdir()
    (cli.place.root / "full/x").touch()
    taken = cli("mount", "try", str(cli.place.root / "full"))
    assert taken.returncode == 125
    assert "is not an empty directory" in taken.stderr


def test_discard_undo_and_redo_accept_yes(cli: Cli) -> None:
    """They never ask; scripts pass it as to their other commands."""
    for fork in ("a", "b"):
        cli.json("fork", "new", fork)
        _exec(cli, fork, f"echo {fork} > {fork}")
    assert cli("apply", "a", "--yes").returncode == 0
    assert cli("undo", "--yes").returncode == 0
    assert cli("redo", "-y").returncode == 0
    assert cli("discard", "b", "--yes").returncode == 0


def test_the_whole_project_among_paths_names_no_path(cli: Cli) -> None:
    _exec(cli, "a", "echo two > file; echo y > d/y")
    assert cli("diff", "a", ".", "--stat").stdout == cli("diff", "a", "--stat").stdout
    assert cli("apply", "a", "--yes", str(cli.place.project)).returncode == 0
    assert [(cli.place.project / path).read_text() for path in ("file", "d/y")] == ["two\n", "y\n"]


def test_held_effects_are_dropped_from_one_fork(cli: Cli) -> None:
    for name in "ab":
        _exec(cli, name, "echo two > file")
    several = cli("discard", "a", "b", "mail:1")
    assert several.returncode == 125
    assert "held effects are dropped from one fork (mudroom discard FORK mail:1)" in several.stderr
    absent = cli("discard", "a", "mail:1")
    assert absent.returncode == 125
    assert "a has no mail:1 (mudroom diff a shows its held effects)" in absent.stderr
    assert cli("diff", "b", "--stat").returncode == 0
