"""``mudroom diff FORK --why`` and ``mudroom apply FORK --commit --trace`` as a user meets them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from spoken import speak, turn

from conftest import Place
from mudroom.vault.store.fork import Fork
from test_vault_verb import Cli

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
GIT = "git -c user.name=T -c user.email=t@example.org -c init.defaultBranch=main"
NOTES = "refs/notes/agent-trace"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["version", "id", "timestamp", "files"],
    "properties": {
        "version": {"type": "string", "pattern": "^[0-9]+\\.[0-9]+$"},
        "id": {"type": "string", "format": "uuid"},
        "timestamp": {"type": "string", "format": "date-time"},
        "vcs": {"required": ["type", "revision"], "properties": {"type": {"enum": ["git", "jj", "hg", "svn"]}}},
        "files": {
            "type": "array",
            "items": {
                "required": ["path", "conversations"],
                "properties": {
                    "conversations": {
                        "items": {
                            "required": ["ranges"],
                            "properties": {
                                "contributor": {
                                    "required": ["type"],
                                    "properties": {"type": {"enum": ["human", "ai", "mixed", "unknown"]}},
                                },
                                "ranges": {
                                    "items": {
                                        "required": ["start_line", "end_line"],
                                        "properties": {
                                            "start_line": {"type": "integer", "minimum": 1},
                                            "end_line": {"type": "integer", "minimum": 1},
                                        },
                                    }
                                },
                            },
                        }
                    }
                },
            },
        },
        "metadata": {"type": "object"},
    },
}
"""What agent-trace.dev's schema demands (version 0.1.0, January 2026)."""


def git(cli: Cli, *words: str, code: int = 0) -> str:
    done = subprocess.run(["git", *words], cwd=cli.place.project, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def fork(cli: Cli) -> Fork:
    return cli.place.session().vault.fork("x")


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("f", "1\n")
    subprocess.run(["sh", "-ec", f"{GIT} init -q; {GIT} add -A; {GIT} commit -qm one"], cwd=place.project, check=True)
    cli = Cli(place)
    git(cli, "config", "user.name", "Me")
    git(cli, "config", "user.email", "me@example.org")
    assert cli("exec", "--fork", "x", "--", "sh", "-ec", "echo two >> f; echo new > n").returncode == 0
    prompt = "add \x1b[31mtwo\n to it " + "x" * 300
    speak(fork(cli), *turn(time.time(), prompt, "Edit", file_path="/p/f", new_string="two"), raw=b"\n{broken\n")
    return cli


def test_each_hunk_has_its_command_and_its_turn(cli: Cli) -> None:
    done = cli("diff", "x", "--why")
    assert done.returncode == 0, done.stderr
    head, first, second, *rest = done.stdout.split("\n")
    assert head == "f @@ -1,1 +1,2 @@"
    assert first.startswith("    observed: changed by command 1 of 1 (`sh -ec 'echo two >> f; echo new > n'`), ")
    assert ", turn 1: “add \\x1b[31mtwo to it xxx" in first and "x" * 300 not in first and "\x1b" not in done.stdout
    assert second == "    claude's s.jsonl has this call, which agrees in path, content, time: Edit"
    assert "n @@ -0,0 +1,1 @@" in rest
    assert done.stderr == "note: 1 part of the conversations could not be read\n"


def test_a_line_and_a_path_choose(cli: Cli) -> None:
    assert [row["path"] for row in cli.json("diff", "x", "--why", "n")["hunks"]] == ["n"]
    report = cli.json("diff", "x", "--why", "f:2")
    assert report["schema"] == "mudroom.reasons/1" and report["skipped"] == 1
    (row,) = report["hunks"]
    assert (row["first"], row["lines"], row["of"], row["turn"]["by"]) == (1, 2, 1, ["path", "content", "time"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--why", "f:99"), "no hunk has the line 99 (mudroom diff x shows the hunks)"),
        (("--why", "nowhere"), "no change at nowhere (mudroom diff x --stat lists the files)"),
        (("--why", "f:0"), "no change at f:0"),
        (("--why", "--stat"), "--why goes with no other list"),
        (("--trace",), "--trace is for --why (mudroom diff FORK --why --trace)"),
        (("now", "--why"), "--why is for the changes of a fork"),
    ],
)
def test_bad_input_is_one_line(cli: Cli, words: tuple[str, ...], text: str) -> None:
    done = cli("diff", "x", *words)
    assert done.returncode == 125 and text in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_record_of_agent_trace_is_printed(cli: Cli) -> None:
    import jsonschema

    done = cli("diff", "x", "--why", "--trace")
    assert done.stderr == "note: 1 part of the conversations could not be read\n"
    record = json.loads(done.stdout)
    jsonschema.validate(record, SCHEMA, format_checker=jsonschema.FormatChecker())
    (file,) = record["files"]
    assert file["path"] == "f", "n has no turn"
    contributor = {"type": "ai", "model_id": "m-1"}
    assert file["conversations"] == [{"contributor": contributor, "ranges": [{"start_line": 2, "end_line": 2}]}]
    observed = record["metadata"]["io.mudroom"]["observed"]
    assert [(row["path"], len(row["commands"])) for row in observed] == [("f", 1), ("n", 1)]


def test_an_apply_with_a_commit_writes_the_record_as_its_note_and_undo_takes_it_back(cli: Cli) -> None:
    git(cli, "notes", "--ref", NOTES, "add", "-m", "mine", "HEAD")
    first = git(cli, "rev-parse", "HEAD").strip()
    done = cli("apply", "x", "--yes", "--commit", "--trace", "-m", "two")
    assert done.returncode == 0, done.stderr
    head = git(cli, "rev-parse", "HEAD").strip()
    record = json.loads(git(cli, "notes", "--ref", NOTES, "show", head))
    assert record["vcs"] == {"type": "git", "revision": head}
    assert [file["path"] for file in record["files"]] == ["f"]
    assert git(cli, "notes", "--ref", NOTES, "show", first) == "mine\n"
    assert git(cli, "log", "-1", "--format=%an %s", NOTES) == "Me Notes added by mudroom\n"
    assert git(cli, "fsck", "--strict") == "" and git(cli, "status", "--porcelain") == ""
    assert cli("undo").returncode == 0
    git(cli, "notes", "--ref", NOTES, "show", head, code=1)
    assert git(cli, "notes", "--ref", NOTES, "show", first) == "mine\n"
    assert cli("redo").returncode == 0
    assert head in git(cli, "notes", "--ref", NOTES, "show", head)


def test_a_note_that_another_has_written_since_does_not_keep_the_undo_from_the_branch(cli: Cli) -> None:
    first = git(cli, "rev-parse", "HEAD").strip()
    assert cli("apply", "x", "--yes", "--commit", "--trace", "-m", "two").returncode == 0
    git(cli, "notes", "--ref", NOTES, "add", "-m", "mine", first)
    done = cli("undo")
    assert "refs/notes/agent-trace" in done.stderr and "has moved since" in done.stderr
    assert git(cli, "rev-parse", "HEAD").strip() == first
    assert git(cli, "notes", "--ref", NOTES, "show", first) == "mine\n"


def test_a_file_that_was_merged_is_not_in_the_record(cli: Cli) -> None:
    cli.place.write("f", "0\n1\n")
    git(cli, "commit", "-qam", "mine")
    assert cli("apply", "x", "--yes", "--commit", "--trace", "-m", "two").returncode in (0, 3)
    assert (cli.place.project / "f").read_text() == "0\n1\ntwo\n"
    record = json.loads(git(cli, "notes", "--ref", NOTES, "show", "HEAD"))
    paths = [row["path"] for row in record["metadata"]["io.mudroom"]["observed"]]
    assert paths == ["n"], "the other's lines are not where the fork has them"


def test_a_locked_ref_of_notes_leaves_the_commit_and_says_so(cli: Cli) -> None:
    git(cli, "notes", "--ref", NOTES, "add", "-m", "mine", "HEAD")
    (cli.place.project / ".git" / f"{NOTES}.lock").touch()
    done = cli("apply", "x", "--yes", "--commit", "--trace", "-m", "two")
    assert done.returncode == 1 and "  the commit has no note: refs/notes/agent-trace cannot be moved" in done.stderr
    assert git(cli, "log", "-1", "--format=%s") == "two\n"
    (cli.place.project / ".git" / f"{NOTES}.lock").unlink()
    assert cli("undo").returncode == 0 and git(cli, "log", "-1", "--format=%s") == "one\n"


def test_without_the_option_there_is_no_note(cli: Cli) -> None:
    assert "--trace is for --commit" in cli("apply", "x", "--yes", "--trace").stderr
    assert cli("apply", "x", "--yes", "--commit", "-m", "two").returncode == 0
    git(cli, "rev-parse", "--verify", "-q", NOTES, code=1)


def test_a_store_that_is_no_directory_or_leads_outside_is_left_out(cli: Cli, tmp_path: Path) -> None:
    file = speak(fork(cli), *turn(time.time(), "one", "Edit", file_path="f", new_string="two"))
    (tmp_path / "outside.jsonl").write_bytes(file.read_bytes())
    file.unlink()
    os.symlink(tmp_path / "outside.jsonl", file)
    speak(fork(cli), agent="odd").parent.parent.parent.parent.joinpath("store").write_text("{")
    report = cli.json("diff", "x", "--why", "f")
    assert report["hunks"][0]["turn"] is None
