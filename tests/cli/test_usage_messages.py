"""Wrong command lines, widths of lines and help, and Ctrl-C before a command has begun."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

import pytest

from conftest import Place
from documents.reference import help_of
from mudroom.cli.main import _HEADINGS, VERBS, offered_verbs, overview, run
from mudroom.cli.terminal import terminal
from mudroom.cli.terminal.fold import fold, fold_help, visible
from mudroom.core.clock import CommandStart
from test_vault_verb import Cli

ENVIRON = {b"HOME": b"/nonexistent", b"PATH": b"/nonexistent"}


WRONG = {
    "run --lvel 1 -- true": "run has no option --lvel (did you mean --level? mudroom run --help)",
    "run --lvl=1 -- true": "run has no option --lvl (did you mean --level? mudroom run --help)",
    "run --yse -- true": "run has no option --yse (did you mean --yes? mudroom run --help)",
    "exec --frok a -- ls": "exec has no option --frok (did you mean --fork? mudroom exec --help)",
    "diff --statt": "diff has no option --statt (did you mean --stat? mudroom diff --help)",
    "ls --foo": "ls has no option --foo (mudroom ls --help)",
    "ls x": "ls takes no argument x (mudroom ls --help)",
    "net alow a.com": "net has no action 'alow' (did you mean mudroom net allow? mudroom net --help)",
    "vault qqq": "vault has no action 'qqq' (choose from ",
    "run --level 7 -- true": "--level 7: choose from 0, 1, 2 (mudroom run --help)",
    "run --yes --no -- true": "--no/-n is not for a line with --yes/-y (mudroom run --help)",
    "run --timeout": "--timeout needs a value (mudroom run --help)",
    "hlep": "there is no verb 'hlep' (did you mean mudroom help?)",
    "stauts": "there is no verb 'stauts' (did you mean mudroom status?)",
    "--hlep": "there is no verb '--hlep' (did you mean mudroom --help?)",
    "setup --json": "there is no verb 'setup' (did you mean mudroom doctor --setup?)",
    "certify": "there is no verb 'certify' (did you mean mudroom doctor --certify?)",
    "init": "there is no verb 'init' (did you mean mudroom doctor --setup?)",
    "commit": "there is no verb 'commit' (did you mean mudroom apply?)",
    "APPLY": "there is no verb 'APPLY' (did you mean mudroom apply?)",
    "discard --all": "discard has no option --all (mudroom discard --help)",
    "discard": "discard needs FORK (mudroom discard --help)",
    "policy": "policy needs an action: why, check, init, learn, schema, show, trust, distrust (mudroom policy --help)",
    "fork": "fork needs an action: new, ls, rename, rm, start (mudroom fork --help)",
    "vault": "vault needs an action: ls, init, gc, check, adopt, archive, export, import (mudroom vault --help)",
    "image": "image needs an action: build, ls, rm (mudroom image --help)",
    "policy why rm -rf /": "policy has no option -rf (a command stands after --: mudroom policy why -- rm -rf /)",
    "apply --dry-run": "apply has no option --dry-run (mudroom diff shows what it would apply)",
    "apply a --dry-run": "apply has no option --dry-run (mudroom diff shows what it would apply)",
    "diff --name-only": "diff has no option --name-only (mudroom diff --stat lists the files)",
    "run --fork x -- ls": "run has no option --fork (mudroom exec --fork NAME -- COMMAND)",
    "run -it ubuntu bash": "run has no option -it (mudroom run --help)",
    "run -yes -- ls": "run has no option -yes (did you mean --yes? mudroom run --help)",
    "run --yes=1 -- ls": "--yes/-y takes no value (mudroom run --help)",
    "run --network off -- ls": "run has no option --network (mudroom run --net none -- COMMAND has no network)",
    "run --no-network -- ls": "run has no option --no-network (mudroom run --net none -- COMMAND has no network)",
    "run --offline ls": "run has no option --offline (mudroom run --net none -- COMMAND has no network)",
    "log --tail": "log has no option --tail (mudroom log -n 20)",
    "log -f": "log has no option -f (mudroom log --follow)",
    "log 5": "log takes no argument 5 (mudroom log -n 5)",
    "log run-1": "log has no action 'run-1' (mudroom log --fork run-1 has the events of a fork; mudroom log --help)",
    "fork list": "fork has no action 'list' (did you mean mudroom fork ls? mudroom fork --help)",
    "fork create y": "fork has no action 'create' (did you mean mudroom fork new? mudroom fork --help)",
    "fork delete y": "fork has no action 'delete' (did you mean mudroom fork rm? mudroom fork --help)",
    "net block x.com": "net has no action 'block' (did you mean mudroom net deny? mudroom net --help)",
    "net list": "net has no action 'list' (did you mean mudroom net ls? mudroom net --help)",
    "vault clean": "vault has no action 'clean' (did you mean mudroom vault gc? mudroom vault --help)",
    "shell x": "shell takes no argument x (mudroom shell --fork x)",
    "rollback x green": "rollback takes no argument green (mudroom rollback CHECKPOINT --fork FORK)",
    "-- ls -l": "there is no verb '--' (did you mean: mudroom run -- ls -l)",
    "--": "there is no verb '--' (options follow the verb; mudroom --help lists the verbs)",
    "-C /tmp status": "there is no verb '-C' (did you mean: mudroom status --project /tmp)",
    "--project /tmp status": "--project belongs behind the verb (mudroom status --project /tmp)",
    "version": "there is no verb 'version' (did you mean mudroom --version?)",
    "gc": "there is no verb 'gc' (did you mean mudroom vault gc?)",
    "proxy": "there is no verb 'proxy' (did you mean mudroom exec?)",
    "stash": "there is no verb 'stash' (did you mean mudroom checkpoint?)",
    "conflicts": "there is no verb 'conflicts' (did you mean mudroom diff --conflicts?)",
    "commits": "there is no verb 'commits' (did you mean mudroom diff --commits?)",
    "-v": "there is no verb '-v' (did you mean mudroom --version?)",
    "--verbose": "there is no verb '--verbose' (options follow the verb; mudroom --help lists the verbs)",
}


def test_a_wrong_word_names_the_right_one(capfd: pytest.CaptureFixture[str]) -> None:
    require_told(WRONG, capfd)


def require_told(lines: Mapping[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    """Assert that each line has one message, which begins so."""
    for line, told in lines.items():
        if line.partition(" ")[0] in VERBS.keys() - offered_verbs().keys():
            continue  # of a satellite that is absent
        assert run(line.split(), ENVIRON) == 125, line
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1), line
        assert err.startswith(f"mudroom: {told}"), (line, err)


def test_a_word_that_is_a_verb_elsewhere_and_a_program_here_has_both(capfd: pytest.CaptureFixture[str]) -> None:
    environ = ENVIRON | {b"PATH": os.environb[b"PATH"]}
    for line, told in (
        ("rm x", "there is no verb 'rm' (did you mean mudroom discard x, or: mudroom run -- rm x)"),
        ("kill", "there is no verb 'kill' (did you mean mudroom ps --end ID? mudroom ps lists them)"),
        ("rm", "there is no verb 'rm' (did you mean mudroom discard FORK? mudroom ls lists them)"),
        ("stop", "there is no verb 'stop' (did you mean mudroom ps --end ID? mudroom ps lists them)"),
        ("kill -9 12", "there is no verb 'kill' (did you mean: mudroom run -- kill -9 12)"),
        ("rm -rf src", "there is no verb 'rm' (did you mean: mudroom run -- rm -rf src)"),
        ("kill x", "there is no verb 'kill' (did you mean mudroom ps --end x, or: mudroom run -- kill x)"),
        ("install", "there is no verb 'install' (did you mean mudroom doctor --setup?)"),
        ("install -d x", "there is no verb 'install' (did you mean: mudroom run -- install -d x)"),
    ):
        assert run(line.split(), environ) == 125
        assert capfd.readouterr().err == f"mudroom: {told}\n"


def test_a_word_of_any_kind_is_one_line_without_effect(capfd: pytest.CaptureFixture[str]) -> None:
    """An escape sequence in a word acted on the terminal, and a newline began a line that looked like mudroom's."""
    for word, told in (("\x1b[2J\nmudroom:ok", "\\x1b[2J\\nmudroom:ok"), ("\udcff", "\\xff"), ("", "''")):
        for verb in ("ls", "status"):
            assert run([verb, word], ENVIRON) == 125
            assert capfd.readouterr().err == f"mudroom: {verb} takes no argument {told} (mudroom {verb} --help)\n"
    assert run(["ls", "x" * 100_000], ENVIRON) == 125
    assert len(capfd.readouterr().err) < 3_000


def test_a_number_of_any_length_is_a_wrong_one(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    """int() of more than 4,300 digits is a ValueError (docs.python.org, int_max_str_digits)."""
    monkeypatch.chdir(place.project)
    nines = "9" * 5_000
    for columns in (nines, "0", "-5", "²", ""):
        assert run(["--help"], ENVIRON | {b"COLUMNS": columns.encode()}) == 0
        assert max(map(len, capfd.readouterr().out.splitlines())) > 60, columns
    environ = ENVIRON | {b"MUDROOM_STATE": os.fsencode(place.state)}
    assert run(["net", "open", nines], environ) == 125
    assert capfd.readouterr().err.count("\n") == 1


def test_help_fits_a_terminal() -> None:
    """No line is longer than the terminal, and nothing is cut off."""
    for columns in (80, 100):
        helps = {
            "": overview(columns),
            "--all": overview(columns, every=True),
            **{verb: help_of(verb, columns) for verb in offered_verbs()},
        }
        long = [
            (verb, line)
            for verb, text in helps.items()
            for line in text.split("\n")
            if len(line) > columns and not re.fullmatch(r" *(\[--[a-z]+ )?\S+", line)  # one long word
        ]
        assert long == []
    for every in (False, True):
        narrow, wide = ("".join(overview(columns, every=every).split()) for columns in (60, 100))
        assert narrow == wide


def test_the_first_screen_fits_a_small_terminal_and_names_the_second() -> None:
    rows = overview(80).splitlines()
    assert len(rows) <= 23, "the prompt takes a row"
    assert "mudroom --help --all" in rows[-1] and "mudroom VERB --help" in rows[-1]


def test_each_verb_stands_under_one_heading() -> None:
    assert sorted(" ".join(_HEADINGS.values()).split()) == sorted(VERBS)


def test_rare_options_are_on_the_second_screen(capfd: pytest.CaptureFixture[str]) -> None:
    for verb, usual, rare in (("run", "--yes", "--inotify"), ("exec", "--fork", "--view"), ("apply", "-p", "--bak ")):
        with pytest.raises(SystemExit):
            run([verb, "--help"], ENVIRON)
        first = capfd.readouterr().out.partition("examples:")[0]
        assert usual in first and rare not in first and f"mudroom {verb} --help --all" in first
        second = help_of(verb).partition("examples:")[0]
        assert usual in second and rare in second and "--help --all" not in second


def test_a_command_in_a_line_is_not_broken() -> None:
    kept = "kept as run-1234abcd: mudroom diff run-1234abcd, mudroom apply run-1234abcd, mudroom discard run-1234abcd"
    assert fold(kept, 80).split("\n") == [
        "kept as run-1234abcd: mudroom diff run-1234abcd, mudroom apply run-1234abcd,",
        "  mudroom discard run-1234abcd",
    ]
    assert (
        fold("\x1b[31mno: \x1b[0m" + "word " * 6 + "end", 20)
        == "\x1b[31mno: \x1b[0mword word word\n  word word word end"
    )
    assert fold("a" * 30, 20) == "a" * 30, "the terminal breaks it, and joins it again when it is copied"
    assert fold("src/a     | +1 -0  deleted, and more", 20) == "src/a     | +1 -0  deleted, and more", "a row"
    assert visible("\x1b[1mab\x1b[0m") == 2


def test_the_remark_of_an_example_stands_beside_or_below_it() -> None:
    beside = "  mudroom ls      " + "word " * 12 + "end"
    assert fold_help(beside, 60).split("\n") == [
        "  mudroom ls      word word word word word word word word",
        "                  word word word word end",
    ]
    assert fold_help("  " + "c" * 40 + "   a remark", 50) == "  " + "c" * 40 + "\n      a remark"
    assert fold_help("one two\nthree four five", 12) == "one two\nthree four\nfive"


def test_progress_goes_to_the_end_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new step and the last count are shown at once, a line never wraps, and the line goes before other text."""
    written: list[str] = []
    now = [100.0]
    monkeypatch.setattr(terminal, "is_terminal", lambda _descriptor: True)
    monkeypatch.setattr(terminal, "_write", lambda _number, text: written.append(text))
    monkeypatch.setattr("mudroom.cli.terminal.terminal.time.monotonic", lambda: now[0])
    monkeypatch.setattr(terminal.Terminal, "columns", lambda _self, _stream: 30)

    def work(environ: dict[bytes, bytes]) -> list[str]:
        shown = terminal.Terminal(environ)
        written.clear()
        for seconds, step in (
            (0.0, ("comparing with the project", 0, 0)),
            (0.4, ("applying", 0, 3000)),
            (0.01, ("applying", 1500, 3000)),
            (0.01, ("applying", 3000, 3000)),
            (0.01, ("recording what was done, which is long", 0, 0)),
        ):
            now[0] += seconds
            shown.progress(*step)
        shown.say("done")
        return [text.replace("\r\x1b[K", "") for text in written]

    lines = ["applying: 0 of 3,000", "applying: 3,000 of 3,000", "recording what was done, whi…", "", "done\n"]
    assert work({b"TERM": b"xterm"}) == lines
    assert work({b"TERM": b"xterm", b"NO_COLOR": b"1"}) == lines, "no colours are no reason for silence (as git, uv)"
    assert work({b"TERM": b"dumb"}) == ["done\n"]


def test_a_step_that_counts_nothing_is_shown_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """An undo of 60,000 files was silent for its first second: nothing is told between a step's begin and its first
    count."""
    written: list[str] = []
    late: list[Callable[[], object]] = []
    monkeypatch.setattr(terminal, "is_terminal", lambda _descriptor: True)
    monkeypatch.setattr(terminal, "_write", lambda _number, text: written.append(text))
    monkeypatch.setattr("mudroom.cli.terminal.terminal.os.write", lambda _number, data: written.append(data.decode()))
    monkeypatch.setattr("mudroom.cli.terminal.terminal.time.sleep", lambda _seconds: None)
    monkeypatch.setattr(
        "mudroom.cli.terminal.terminal._thread.start_new_thread", lambda call, words: late.append(lambda: call(*words))
    )
    shown = terminal.Terminal({b"TERM": b"xterm"})
    shown.progress("reading the apply", 0, 0)
    shown.progress("taking back", 0, 3)
    assert (written, len(late)) == ([], 1), "no text for work that is short"
    late[0]()
    assert written == ["\r\x1b[Ktaking back: 0 of 3"]
    late[0]()
    assert len(written) == 1, "it is shown once"
    shown.say("done")
    shown.progress("recording", 0, 0)
    shown.say("done")
    written.clear()
    late[1]()
    shown.clear()
    assert written == [], "the work is over"
    quiet = terminal.Terminal({b"TERM": b"dumb"})
    quiet.progress("reading the apply", 0, 0)
    assert len(late) == 2


def test_work_goes_on_where_no_thread_can_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that had used up the user's processes: its changes were not collected."""

    def refused(*_arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(terminal, "is_terminal", lambda _descriptor: True)
    monkeypatch.setattr("mudroom.cli.terminal.terminal._thread.start_new_thread", refused)
    shown = terminal.Terminal({b"TERM": b"xterm"})
    shown.progress("collecting the changes", 0, 0)
    shown.clear()


def test_a_command_that_was_cut_off_does_not_run(place: Place) -> None:
    """While the policy cannot be read its changes cannot be collected; the list says how it stands."""
    place.write("a", "1\n")
    cli = Cli(place)
    assert cli("exec", "--fork", "x", "--", "touch", "b").returncode == 0
    with place.session() as session:
        fork = session.vault.fork("x")
        with fork.lock("a command that is killed"):
            fork.begin(CommandStart(1))
        place.write(".mudroom/policy.yaml", "comands: {}\n")
        assert [row["state"] for row in cli.json("ls")["forks"]] == ["cut off"]
        assert "its last command was cut off" in cli("ls").stdout
        with open(fork.path + b"/lock", "rb") as stream:
            assert stream.read().strip() == b"a command that is killed", "the collection names it later"
        with fork.lock("a command"):
            assert [row["state"] for row in cli.json("ls")["forks"]] == ["running"]
