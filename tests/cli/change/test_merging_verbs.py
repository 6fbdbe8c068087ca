"""Merging, deciding and choosing as a user meets it: whole processes, a terminal where one is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Place, listing, tick
from mudroom.vault.moment import present
from satellites import needs
from screen import Screen
from test_vault_verb import MUDROOM, Cli

TEXT = "".join(f"line {number}\n" for number in range(1, 41))


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("f", TEXT)
    place.write("g.py", "g\n")
    return Cli(place)


def edit(cli: Cli, script: str, fork: str = "x") -> None:
    done = cli("exec", "--fork", fork, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr


def user(cli: Cli, old: str, new: str) -> None:
    tick()
    path = cli.place.project / "f"
    path.write_text(path.read_text().replace(old, new))


def in_conflict(cli: Cli) -> None:
    """Two places in one file, and a file that goes without saying."""
    edit(cli, "sed -i 's/^line 3$/theirs/; s/^line 30$/theirs too/' f; echo t > g.py")
    user(cli, "line 3\n", "ours\n")
    user(cli, "line 30\n", "ours too\n")


def test_a_conflict_is_shown_decided_and_applied(cli: Cli) -> None:
    in_conflict(cli)
    done = cli("apply", "x", "--yes")
    assert done.returncode == 3
    assert "f: also changed in the project, in the same lines, at 2 places" in done.stderr
    assert "mudroom resolve x" in done.stderr
    assert (cli.place.project / "g.py").read_text() == "t\n"
    assert "ours\n" in (cli.place.project / "f").read_text(), "no markers"

    listed = cli("resolve", "x")
    assert listed.returncode == 3
    assert listed.stdout == "conflict  f: also changed in the project, in the same lines, at 2 places\n"
    shown = cli("diff", "x", "--conflicts")
    assert shown.returncode == 3
    for line in ("+<<<<<<< project\n", "+||||||| original\n", "+=======\n", "+>>>>>>> x\n", " ours\n", "+theirs too\n"):
        assert line in shown.stdout
    assert cli("resolve", "x", "f", "--hunk", "1", "--theirs", "--hunk", "2", "--mine").returncode == 0
    assert cli.json("resolve", "x")["conflicts"][0]["decided"] is True
    applied = cli.json("apply", "x", "--yes")
    assert (applied["state"], applied["merged"]) == ("applied", ["f"])
    text = (cli.place.project / "f").read_text()
    assert text == TEXT.replace("line 3\n", "theirs\n").replace("line 30\n", "ours too\n")


@pytest.mark.parametrize(
    ("choice", "third"), [("--mine", "ours\n"), ("--theirs", "theirs\n"), ("--both", "ours\ntheirs\n")]
)
def test_one_side_or_both(cli: Cli, choice: str, third: str) -> None:
    in_conflict(cli)
    assert cli("resolve", "x", "f", choice).returncode == 0
    assert cli("apply", "x", "--yes").returncode == 0
    assert (cli.place.project / "f").read_text().startswith("line 1\nline 2\n" + third + "line 4\n")
    assert cli("undo").returncode == 0
    assert "ours too" in (cli.place.project / "f").read_text()


def by_rule(cli: Cli) -> None:
    """Two files in conflict: a rule merges the one, and none the other."""
    cli.place.write("m.py", "import a\n\nx = 1\n")
    edit(cli, "sed -i 's/^line 3$/theirs/' f; printf 'import a\\nimport c\\n\\nx = 1\\n' > m.py")
    user(cli, "line 3\n", "ours\n")
    cli.place.write("m.py", "import a\nimport b\n\nx = 1\n")


@needs("merging")
def test_what_a_rule_merges_is_shown_and_taken_only_when_asked_for(cli: Cli) -> None:
    by_rule(cli)
    assert cli("apply", "x", "--yes").returncode == 3
    assert (cli.place.project / "m.py").read_text() == "import a\nimport b\n\nx = 1\n"
    told = "m.py: also changed in the project, in the same lines; --rule merges it: union of imports"
    assert told in cli("resolve", "x").stdout
    assert [row["rule"] for row in cli.json("resolve", "x", code=3)["conflicts"]] == [None, "union of imports"]
    shown = cli("diff", "x", "--conflicts").stdout
    assert "\nmerged by rule: union of imports (mudroom resolve x m.py --rule)\n" in shown
    assert "+import c\n" in shown
    refused = cli("resolve", "x", "f", "--rule")
    assert (refused.returncode, refused.stderr) == (
        125,
        "mudroom: no rule merges f (mudroom resolve x lists what decides it)\n",
    )
    decided = cli("resolve", "x", "--all", "--rule")
    assert decided.returncode == 3, "f is still to be decided"
    assert decided.stdout.splitlines() == [
        "conflict  f: also changed in the project, in the same lines",
        "decided  m.py: merged by rule: union of imports",
    ]
    assert [row["how"] for row in cli.json("resolve", "x", code=3)["conflicts"]] == [
        None,
        "merged by rule: union of imports",
    ]
    applied = cli("apply", "x", "m.py", "--yes")
    assert "m.py merged by rule: union of imports" in applied.stdout + applied.stderr
    assert (cli.place.project / "m.py").read_text() == "import a\nimport b\nimport c\n\nx = 1\n"


@needs("merging")
def test_a_lock_file_that_cannot_be_made_again_is_one_line(cli: Cli) -> None:
    cli.place.write("uv.lock", "")
    edit(cli, "echo 'version = 1' > uv.lock; echo '[' > pyproject.toml")
    cli.place.write("uv.lock", "version = 2\n")
    cli.environment["PATH"] = "/usr/bin:/bin"
    assert "uv.lock: also changed in the project" in cli("resolve", "x").stdout
    assert "; --rule makes it again: uv lock\n" in cli("resolve", "x").stdout
    assert cli.json("resolve", "x", code=3)["conflicts"][0]["command"] == "uv lock"
    shown = cli("diff", "x", "--conflicts").stdout
    assert "\nmade again by uv lock: mudroom resolve x uv.lock --rule\n" in shown
    done = cli("resolve", "x", "uv.lock", "--rule")
    assert done.returncode == 3, "the conflict stays"
    said = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert len(said) == 1
    assert said[0].startswith("note: uv.lock is not made again: uv")
    assert said[0].endswith("mudroom resolve x uv.lock --mine, or --theirs, decides it)")
    assert len(cli.json("ls")["forks"]) == 1, "the fork in which it ran is gone"


def test_a_decision_holds_only_for_what_was_decided_about(cli: Cli) -> None:
    in_conflict(cli)
    cli("resolve", "x", "f", "--theirs")
    user(cli, "ours\n", "ours again\n")
    assert cli("apply", "x", "--yes").returncode == 3
    assert "ours again\n" in (cli.place.project / "f").read_text()


def test_a_decision_is_taken_back(cli: Cli) -> None:
    in_conflict(cli)
    cli("resolve", "x", "f", "--theirs")
    assert cli("resolve", "x", "f", "--undecide").returncode == 3
    assert cli("resolve", "x", "f", "--undecide").stderr.startswith("mudroom: nothing is decided about f")
    assert cli("apply", "x", "--yes").returncode == 3


def test_both_of_what_is_no_text(cli: Cli) -> None:
    project = cli.place.project
    (project / "logo.png").write_bytes(b"\x89PNG\0old")
    edit(cli, r"printf '\211PNG\0theirs' > logo.png")
    tick()
    (project / "logo.png").write_bytes(b"\x89PNG\0ours")
    cli("diff", "x")
    assert cli("resolve", "x", "logo.png", "--both").returncode == 0
    assert cli("apply", "x", "--yes").returncode == 0
    assert (project / "logo.png").read_bytes() == b"\x89PNG\0ours"
    assert (project / "logo.theirs.png").read_bytes() == b"\x89PNG\0theirs"


def script(cli: Cli, name: str, body: str) -> str:
    path = cli.place.root / name
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return str(path)


def test_the_project_goes_on_while_the_editor_is_open(cli: Cli) -> None:
    in_conflict(cli)
    file = cli.place.project / "f"
    cli.environment["EDITOR"] = script(cli, "edit", f"echo by hand > \"$1\"; echo saved >> '{file}'\n")
    done = cli("resolve", "x", "f", "--edit")
    assert done.returncode == 4
    assert "one side of f has changed since you looked; nothing was decided" in done.stderr
    assert "conflict" in cli("resolve", "x").stdout
    assert file.read_text().endswith("saved\n")


def test_in_an_editor(cli: Cli) -> None:
    in_conflict(cli)
    cli.environment["EDITOR"] = script(cli, "keep", "exit 0\n")
    done = cli("resolve", "x", "f", "--edit")
    assert done.returncode == 125
    assert "f still has conflict markers (nothing was decided; edit it again)" in done.stderr
    cli.environment["EDITOR"] = script(cli, "edit", 'grep -q \'<<<<<<< project\' "$1" && echo by hand > "$1"\n')
    assert cli("resolve", "x", "f", "--edit").returncode == 0
    assert cli("apply", "x", "--yes").returncode == 0
    assert (cli.place.project / "f").read_text() == "by hand\n"


def test_by_a_merge_driver(cli: Cli) -> None:
    in_conflict(cli)
    driver = script(cli, "driver", 'cat "$1" "$2" "$3" | wc -l > "$2.new"; mv "$2.new" "$2"\n')
    assert cli("resolve", "x", "f", "--tool", f"{driver} %O %A %B").returncode == 0
    assert cli("apply", "x", "--yes").returncode == 0
    assert (cli.place.project / "f").read_text() == "120\n"


def test_bad_input_is_one_line(cli: Cli) -> None:
    in_conflict(cli)
    for words, message in (
        (["--mine"], "which conflict?"),
        (["g.py", "--mine"], "there is no conflict at g.py"),
        (["nothing", "--mine"], "the fork has no change at nothing"),
        (["f", "--hunk", "3", "--mine"], "f has no conflict 3 (it has 2)"),
        (["f", "--hunk", "1", "--mine"], "f: conflict 2 is not decided"),
        (["f", "--hunk", "x"], "--hunk takes the number of a conflict in the file, not 'x'"),
        (["f", "--hunk", "1"], "--hunk needs --mine, --theirs or --both after it"),
        (["f", "--mine", "--edit"], "one way of deciding at a time"),
        (["f", "--tool", "nowhere %A %B"], "there is no merge driver nowhere"),
        (["f", "--tool", "true"], "the merge driver 'true' is not told the files"),
        (["f", "--tool", "false %A %B"], "false exited with 1 (nothing was decided)"),
    ):
        done = cli("resolve", "x", *words)
        assert (done.returncode, done.stderr.count("\n")) == (125, 1), (words, done.stderr)
        assert done.stderr.startswith(f"mudroom: {message}"), words


def test_markers_in_the_tree_only_if_asked_for(cli: Cli) -> None:
    in_conflict(cli)
    report = cli.json("apply", "x", "--yes", "--markers", code=3)
    assert report["conflicts"] == [{"path": "f", "reason": "conflict markers were written into it, as requested"}]
    assert (cli.place.project / "f").read_text().count("<<<<<<< project\n") == 2
    assert cli("undo").returncode == 0
    assert "<<<<<<<" not in (cli.place.project / "f").read_text()


def test_by_pattern(cli: Cli) -> None:
    edit(cli, "mkdir -p d/e; echo 1 > d/e/a.py; echo 1 > d/b.c; echo 1 > g.py; echo 1 > f")
    assert cli("apply", "x", "--yes", "*.py").returncode == 0
    project = cli.place.project
    assert (project / "d/e/a.py").exists() and (project / "g.py").read_text() == "1\n"
    assert not (project / "d/b.c").exists() and (project / "f").read_text() == TEXT
    assert cli("apply", "x", "--yes", "d/*.c").returncode == 0
    assert (project / "d/b.c").exists()
    assert "nothing in the fork matches *.rs" in cli("apply", "x", "--yes", "*.rs").stderr


def test_hunk_by_hunk_and_the_rest_later(cli: Cli) -> None:
    edit(cli, "sed -i 's/^line 3$/three/; s/^line 20$/twenty/; s/^line 38$/last/' f; echo 1 > g.py; echo n > new")
    code, shown = cli.answer("", "y\nn\ny\nn\ny\n", "apply", "x", "-p")
    assert code == 0, shown
    assert "(1/3) apply this hunk [y,n,a,d,q,?]?" in shown and "-line 20" in shown
    assert "merged" not in shown, "the project had changed nothing"
    project = cli.place.project
    assert (project / "f").read_text() == TEXT.replace("line 3\n", "three\n").replace("line 38\n", "last\n")
    assert (project / "g.py").read_text() == "g\n"
    assert (project / "new").read_text() == "n\n"
    left = cli.json("diff", "x")["changes"]["files"]
    assert {(one["path"], one["lines_added"], one["lines_removed"]) for one in left} == {("f", 1, 1), ("g.py", 1, 1)}
    assert "+twenty\n" in cli("diff", "x").stdout and "three" not in cli("diff", "x").stdout
    user(cli, "line 10\n", "ten\n")
    assert cli("apply", "x", "--yes").returncode == 0
    text = TEXT.replace("line 3\n", "three\n").replace("line 20\n", "twenty\n").replace("line 38\n", "last\n")
    assert (project / "f").read_text() == text.replace("line 10\n", "ten\n")
    cli("undo")
    cli("undo")
    assert (project / "f").read_text() == TEXT.replace("line 10\n", "ten\n")


THREE = "sed -i 's/^line 3$/three/; s/^line 20$/twenty/; s/^line 38$/last/' f; chmod 755 f; echo 1 > g.py"


@pytest.mark.parametrize("leave", ["q\n", "\x04"])
@pytest.mark.parametrize(
    ("answers", "mode", "lines"),
    [
        ("n\ny\n", 0o644, ["three"]),
        ("y\n", 0o755, []),
        ("y\ny\nn\n", 0o755, ["three"]),
        ("n\nn\ny\n", 0o644, ["twenty"]),
    ],
)
def test_leaving_the_questions_keeps_the_answers(
    cli: Cli, answers: str, mode: int, lines: list[str], leave: str
) -> None:
    edit(cli, THREE)
    code, shown = cli.answer("", answers + leave, "apply", "x", "-p")
    assert code == 0, shown
    path = cli.place.project / "f"
    assert [word for word in ("three", "twenty", "last") if word in path.read_text()] == lines, shown
    assert path.stat().st_mode & 0o777 == mode
    assert (cli.place.project / "g.py").read_text() == "g\n", "it was not asked about"
    assert "g.py" in cli("diff", "x").stdout


@pytest.mark.parametrize("leave", ["q\n", "\x04"])
def test_leaving_the_questions_keeps_a_whole_file(cli: Cli, leave: str) -> None:
    edit(cli, "printf '\\0a' > a.bin; printf '\\0b' > b.bin; printf '\\0c' > c.bin")
    code, shown = cli.answer("", "y\nn\n" + leave, "apply", "x", "-p")
    assert code == 0, shown
    assert [(cli.place.project / name).exists() for name in ("a.bin", "b.bin", "c.bin")] == [True, False, False]


def test_leaving_the_questions_before_an_answer_applies_nothing(cli: Cli) -> None:
    edit(cli, THREE)
    code, shown = cli.answer("", "?\nq\n", "apply", "x", "-p")
    assert code == 0
    assert "q - stop asking: what was chosen so far is applied" in shown and "Ctrl-C - apply nothing" in shown
    assert "nothing was chosen; all stays in the fork" in shown
    assert (cli.place.project / "f").read_text() == TEXT


def test_ctrl_c_among_the_questions_applies_nothing(cli: Cli) -> None:
    edit(cli, THREE)
    screen = Screen(cli.place, *MUDROOM, "apply", "x", "-p")
    screen.expect("mode 0644")
    screen.type("y\r")
    screen.expect("apply this hunk")
    screen.type("\x03")
    screen.expect("interrupted: nothing was applied; x is as it was")
    assert screen.exit_code() == 130
    assert (cli.place.project / "f").stat().st_mode & 0o777 == 0o644


def test_a_hunk_is_split_and_the_rest_of_a_file_left(cli: Cli) -> None:
    edit(cli, "sed -i 's/^line 3$/three/; s/^line 6$/six/; s/^line 30$/thirty/' f; chmod 755 f")
    code, shown = cli.answer("", "n\ns\nn\ny\nd\n", "apply", "x", "-p")
    assert code == 0, shown
    assert "mode 0644 -> 0755" in shown
    path = cli.place.project / "f"
    assert path.read_text() == TEXT.replace("line 6\n", "six\n")
    assert path.stat().st_mode & 0o777 == 0o644
    assert cli("apply", "x", "--yes").returncode == 0
    assert path.stat().st_mode & 0o777 == 0o755
    assert path.read_text() == TEXT.replace("line 3\n", "three\n").replace("line 6\n", "six\n").replace(
        "line 30\n", "thirty\n"
    )


def test_a_directory_is_chosen_without_what_is_in_it(cli: Cli) -> None:
    cli.place.write("d/f", "old\n")
    edit(cli, "chmod 700 d; echo new > d/f")
    code, shown = cli.answer("", "y\nn\n", "apply", "x", "-p")
    assert code == 0, shown
    assert "change d (directory)" in shown
    assert (cli.place.project / "d").stat().st_mode & 0o777 == 0o700
    assert (cli.place.project / "d/f").read_text() == "old\n"


TURN = "rm -r d; echo now > d; rm g.py; mkdir g.py; echo 1 > g.py/a; echo 2 > g.py/b"


def test_hunk_by_hunk_nothing_goes_that_was_answered_with_no(cli: Cli) -> None:
    """Where a directory becomes a file, or a file a directory, what goes together is chosen together, or not at all."""
    cli.place.write("d/f", "old\n")
    edit(cli, TURN)
    before = listing(cli.place.project)
    _code, shown = cli.answer("", "y\nn\nn\ny\ny\n", "apply", "x", "-p")
    assert "change d (directory becomes file) [" in shown and "change g.py (file becomes directory) [" in shown
    assert "d goes only together with d/f: it stays in the fork" in shown
    assert "g.py/b goes only together with g.py: it stays in the fork" in shown
    assert "nothing was chosen; all stays in the fork" in shown
    _code, shown = cli.answer("", "n\nn\ny\ny\nn\n", "apply", "x", "-p")
    assert "g.py goes only together with g.py/b: it stays" in shown and "g.py/a goes only together with g.py:" in shown
    assert listing(cli.place.project) == before
    code, shown = cli.answer("", "y\ny\ny\ny\ny\n", "apply", "x", "-p")
    assert code == 0 and "together" not in shown
    assert (cli.place.project / "d").read_text() == "now\n" and (cli.place.project / "g.py/b").read_text() == "2\n"


def test_a_file_in_a_directory_that_was_a_file_is_not_named_alone(cli: Cli) -> None:
    cli.place.write("d/f", "old\n")
    edit(cli, TURN)
    done = cli("apply", "x", "--yes", "g.py/a")
    assert done.returncode == 125
    assert done.stderr == "mudroom: g.py/a goes only together with g.py (mudroom apply x g.py)\n"
    assert cli("apply", "x", "--yes", "g.py").returncode == 0
    assert cli("apply", "x", "--yes", "d").returncode == 0
    assert (cli.place.project / "d").is_file() and (cli.place.project / "g.py/b").is_file()


def test_a_part_is_merged_only_with_what_the_project_has_changed(cli: Cli) -> None:
    edit(cli, "sed -i 's/^line 3$/three/; s/^line 20$/twenty/' f")
    user(cli, "line 38\n", "last\n")
    _code, shown = cli.answer("", "y\nn\n", "apply", "x", "-p")
    assert "merged with what the project had changed: f" in shown


def test_the_projects_own_is_kept_and_what_was_dropped_comes_back(cli: Cli) -> None:
    edit(cli, "sed -i 's/^line 3$/theirs/; s/^line 30$/theirs too/' f")
    user(cli, "line 3\n", "ours\n")
    assert cli("resolve", "x", "f", "--mine").returncode == 0
    done = cli("apply", "x", "--yes")
    assert done.returncode == 0
    assert "applied: the project stays as it is   mudroom undo takes it back (u1)" in done.stderr
    assert "the project's was kept: f" in done.stderr and "merged" not in done.stderr
    assert "apply=u1  kept=1" in cli("log").stdout
    assert cli.json("ls")["forks"][0]["changed"] == 0
    assert cli("undo").returncode == 0
    assert "+theirs too\n" in cli("diff", "x").stdout
    assert cli.json("resolve", "x")["conflicts"][0]["decided"] is True
    applied = cli.json("apply", "x", "--yes")
    assert (applied["kept"], applied["merged"], applied["undo"]) == (["f"], [], "u2")


def test_nothing_chosen_is_nothing_done(cli: Cli) -> None:
    edit(cli, "echo 1 > g.py; printf 'a\\0' > binary")
    code, shown = cli.answer("", "?\nn\nq\n", "apply", "x", "-p")
    assert code == 0
    assert "leave it in the fork" in shown
    assert "nothing was chosen; all stays in the fork" in shown
    assert (cli.place.project / "g.py").read_text() == "g\n"
    assert cli("apply", "x", "-p").returncode == 125


def test_an_agent_that_goes_on_after_the_look(cli: Cli) -> None:
    edit(cli, "echo 1 > g.py")
    cli("diff", "x")
    edit(cli, "echo evil > g.py")
    done = cli("apply", "x", "--yes")
    assert done.returncode == 4
    assert "x has changed since it was shown; nothing was applied" in done.stderr
    assert done.stderr.endswith("(mudroom diff x shows it as it is now)\n")
    assert (cli.place.project / "g.py").read_text() == "g\n"
    seen = cli.json("diff", "x")["reviewed"]
    assert cli("apply", "x", "--yes", "--reviewed", seen).returncode == 0


def test_a_verify_command_that_fails(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", "verify:\n  command: echo looking; grep -q theirs f\n  when: always\n")
    edit(cli, "echo more >> f")
    done = cli("apply", "x", "--yes")
    assert done.returncode == 5
    assert "  | looking\n" in done.stderr
    assert "nothing was applied: /bin/sh -c 'echo looking; grep -q theirs f' exited with 1" in done.stderr
    assert (cli.place.project / "f").read_text() == TEXT
    edit(cli, "echo theirs >> f")
    report = cli.json("apply", "x", "--yes")
    assert report["verified"]["output"] == "looking\n"
    assert cli("run", "--yes", "--", "sh", "-c", "echo > f").returncode == 5
    assert (cli.place.project / "f").read_text() == TEXT + "more\ntheirs\n"


def test_what_verifies_has_not_what_was_opened_to_the_command(cli: Cli) -> None:
    cli.place.write(".env", "KEY=1\n")
    secret = cli.place.root / "outside"
    secret.mkdir()
    (secret / "s").write_text("hidden\n")
    look = f"echo token=$TOKEN; cat .env; cat {secret}/s 2>&1; touch {secret}/written 2>&1; false"
    cli.place.write(".mudroom/policy.yaml", f"verify:\n  command: {look!r}\n  when: always\n")
    cli.environment["TOKEN"] = "hunter2"
    opened = ("--env", "TOKEN", "--show", ".env", "--read", str(secret), "--net", "open")
    script = f"echo $TOKEN > x; cat .env {secret}/s >> x; cat x"
    for level in ("1", "0"):
        done = cli("run", "--yes", "--level", level, *opened, "--", "sh", "-c", script)
        assert (done.returncode, done.stdout) == (5, "hunter2\nKEY=1\nhidden\n")
        assert "  | token=\n" in done.stderr
        assert "  | KEY" not in done.stderr and "  | hidden" not in done.stderr
        assert not (secret / "written").exists()
    cli.place.write(".mudroom/policy.yaml", "verify:\n  command: grep -q done x; cat .env\n  when: always\n")
    done = cli("run", "--yes", "--show", ".env", "--", "sh", "-c", "echo MORE=1 >> .env; echo done > x")
    assert done.returncode == 0, done.stderr
    assert (cli.place.project / ".env").read_text() == "KEY=1\nMORE=1\n", (
        "what was shown to the command is its to change"
    )


def test_recover_says_that_there_is_nothing(cli: Cli) -> None:
    assert cli("recover").stderr == "nothing was cut off\n"
    assert cli.json("recover") == {"schema": "mudroom.recovered/1", "applies": [], "forks": []}


def test_recover_names_the_forks_whose_command_was_cut_off(cli: Cli) -> None:
    cli.keep("echo x > made; echo y > more")
    name = cli.json("ls")["forks"][0]["fork"]
    cli.place.session().vault.fork(name).begin(present())  # mudroom was killed while a command ran in it
    assert f"a command of {name} was cut off; 2 changes of it are kept: mudroom diff {name}" in cli("recover").stderr
    again = cli.json("recover")  # until somebody decides
    assert again["forks"] == [{"fork": name, "changed": 2}]
    assert cli("discard", name, "--yes").returncode == 0
    assert cli.json("recover")["forks"] == []


def test_conflicts_are_told_before_the_question(cli: Cli) -> None:
    in_conflict(cli)
    code, shown = cli.answer("", "c\n", "apply", "x")
    assert code == 0
    assert "! conflicts with the project, and stays in the fork: f\n" in shown
    code, shown = cli.answer("", "a\n", "apply", "x", "g.py")
    assert code == 0
    assert "apply would change 1 file\n" in shown and "conflicts with" not in shown
    assert (cli.place.project / "g.py").read_text() == "t\n"


def test_backups(cli: Cli) -> None:
    edit(cli, "echo 1 > g.py")
    assert cli("apply", "x", "--yes", "--bak").returncode == 0
    assert sorted(path.name for path in Path(cli.place.project).iterdir()) == ["f", "g.py", "g.py.bak"]


def test_a_file_that_is_exchanged_while_the_pager_waits(cli: Cli) -> None:
    """The reader takes a part of the difference. Then a command shows another file, and puts the first one back."""
    cli.place.write("z/made", "old\n")
    edit(cli, "yes | head -c 400000 > a; rm -r z; mkdir z; echo planted > z/made; touch -d @1 z/made")
    diff = ["diff", "x"]
    with cli.start(*diff) as reader:
        assert reader.stdout is not None and reader.stderr is not None
        assert reader.stdout.read(9) == b"diff --gi"
        edit(cli, "mv z y; mkdir z; echo seen > z/made; touch -d @1 z/made")
        assert b"+seen" not in reader.stdout.read()
        assert b"z/made in the fork is not what was reviewed" in reader.stderr.read()
    assert reader.returncode == 4
    edit(cli, "rm -r z; mv y z")
    assert cli("apply", "x", "--yes").returncode == 4
    assert (cli.place.project / "z/made").read_text() == "old\n"
    assert "+planted" in cli("diff", "x").stdout
    assert cli("apply", "x", "--yes").returncode == 0
