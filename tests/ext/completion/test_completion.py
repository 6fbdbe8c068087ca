"""Completion by the real shells, the words they ask for, and the manual page."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mudroom.cli.main import VERBS
from mudroom.ext.completion import NAMES
from mudroom.ext.completion.generate import generated
from mudroom.ext.completion.grammar import lines
from mudroom.ext.windows.cli.windows import PORTED

MODULES = 70
"""Modules of mudroom at most that the names of forks load: fewer than half of those of mudroom ls."""

LINES = {
    "mudroom ap": ["apply", "approve"],
    "mudroom run --net ": ["gate", "none", "open"],
    "mudroom run --env X --ne": ["--net"],
    "mudroom fork ": ["ls", "new", "rename", "rm", "start"],
    "mudroom fork rm al": ["alpha"],
    "mudroom exec --fork ": ["alpha", "beta"],
    "mudroom discard --json b": ["beta"],
    "mudroom diff alpha on": ["one.txt"],
    "mudroom net allow @npm": ["@npm"],
    "mudroom agent run --art": ["--artifacts"],
    "mudroom agent show cla": ["claude"],
    "mudroom run -- mudroom-tr": ["mudroom-try-me"],
}
"""A line up to the cursor, and what is offered."""


class Desk:
    """A project with two forks, and a PATH with mudroom."""

    def __init__(self, tmp_path: Path) -> None:
        self.project = tmp_path / "project"
        (self.project / ".mudroom").mkdir(parents=True)
        programs = tmp_path / "bin"
        programs.mkdir()
        for name, text in (("mudroom", f'exec {sys.executable} -m mudroom "$@"'), ("mudroom-try-me", "true")):
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        self.environ = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "MUDROOM_STATE": str(tmp_path / "state"),
            "MUDROOM_KEEPER": "0",
            "TERM": "xterm",
            "LC_ALL": "C.UTF-8",
        }

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Without a limit of its own: a test has one, and a shell asks ten times."""
        return subprocess.run(
            words, cwd=self.project, env=self.environ | more, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    desk = Desk(tmp_path_factory.mktemp("desk"))
    for name in ("alpha", "beta"):
        done = desk.run("mudroom", "exec", "--fork", name, "--", "sh", "-c", "echo 1 > one.txt; echo 2 > 'two words'")
        assert done.returncode == 0, done.stderr
    return desk


def shell(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed (./check installs it)"
    return found


def test_each_verb_is_in_each_text() -> None:
    for name in NAMES:
        text = generated(name)
        assert [verb for verb in VERBS if verb not in text] == []


def test_each_text_is_that_of_the_verb(desk: Desk) -> None:
    for name in NAMES:
        assert desk.run("mudroom", "completion", name).stdout == generated(name)


def test_on_windows_it_has_the_verbs_that_run_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert {line.words[0] for line in lines()} == {verb for verb in VERBS if verb in PORTED}


def test_bash(desk: Desk) -> None:
    ask = """
eval "$(mudroom completion bash)"
while IFS= read -r line; do
    read -ra COMP_WORDS <<<"$line"
    [[ $line == *' ' ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _mudroom 2>/dev/null
    printf '%s\\n' "${COMPREPLY[@]}" | sort -u | paste -sd,
done <<'EOF'
%s
EOF
"""
    done = desk.run(shell("bash"), "--norc", "-c", ask.replace("%s\nEOF", "\n".join(LINES) + "\nEOF"))
    assert dict(zip(LINES, done.stdout.splitlines(), strict=True)) == {k: ",".join(v) for k, v in LINES.items()}


EVIL = ("b`touch OWNED`b", "c`id`c", "d$(id)d", "e$HOME", "f;id", "g&id", "h h", "i'i", 'j"j', "k*", "l{1,2}", "m!!")


@pytest.fixture
def evil(desk: Desk) -> Iterator[Desk]:
    """The desk with a fork whose files are named by an attacker."""
    names = (*EVIL, "--yes", "-x", "n\x1b[31m", "o\no")
    done = desk.run("mudroom", "exec", "--fork", "evil", "--", "sh", "-c", 'for n; do : > "$n"; done', "sh", *names)
    assert done.returncode == 0, done.stderr
    yield desk
    assert desk.run("mudroom", "discard", "evil").returncode == 0


def test_a_path_that_is_an_option_or_has_control_characters_is_not_offered(evil: Desk) -> None:
    assert evil.run("mudroom", "completion", "--values", "paths", "evil").stdout.splitlines() == [*EVIL]


def test_bash_inserts_a_hostile_path_quoted(evil: Desk) -> None:
    """With readline, for it is readline that quotes or does not."""
    ours, theirs = pty.openpty()
    environ = evil.environ | {"PS1": "$ ", "TERM": "dumb", "INPUTRC": "/dev/null"}
    with subprocess.Popen(
        [shell("bash"), "--norc", "--noprofile", "-i"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=evil.project, env=environ, start_new_session=True,
    ):  # fmt: skip
        os.close(theirs)
        lines = [
            'eval "$(mudroom completion bash)"',
            # What the shell would run is told, and not run; the words of a completion are those of the fork.
            'mudroom() { if [[ $1 == completion ]]; then cat paths; else printf "%s\\n" "$3" >> told; fi; }',
            *(f"mudroom diff evil {name[0]}\t" for name in EVIL),
            *(f'mudroom diff evil "{name[0]}\t"' for name in EVIL[:3]),
            "mudroom diff evil h\\ \t",
            "exit",
        ]
        (evil.project / "paths").write_text("\n".join(EVIL) + "\n")
        for line in lines:
            os.write(ours, line.encode() + b"\n")
        shown = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # EIO: the other end is closed
                break
            shown += chunk
            if not chunk:
                break
    os.close(ours)
    told = (evil.project / "told").read_text().splitlines()
    assert told == [*EVIL, "b", "c", "d", "h h"], shown.decode()
    assert not (evil.project / "OWNED").exists()


def test_fish(desk: Desk) -> None:
    lines = " ".join(f"'{line}'" for line in LINES)
    ask = f"""
source (mudroom completion fish | psub)
for line in {lines}
    echo (complete -C "$line" | string split -f1 \\t | string match -v '*/' | sort -u | string join ,)
end
"""
    done = desk.run(shell("fish"), "--no-config", "-c", ask)
    assert dict(zip(LINES, done.stdout.splitlines(), strict=True)) == {k: ",".join(v) for k, v in LINES.items()}


@pytest.mark.limit(300)
def test_zsh(desk: Desk) -> None:
    """One key completes and reports: with two, zsh waits for a longer key sequence after the second, and looks for
    pending keys during the first."""
    only = {line: found[0] for line, found in LINES.items() if len(found) == 1}
    ask = """
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PS1= PS2=; autoload -Uz compinit; compinit -u -D; eval "$(mudroom completion zsh)"'
zpty -w z 'report() { zle expand-or-complete; print -r -- "<<""$BUFFER"">>"; BUFFER= }'
zpty -w z 'zle -N report; bindkey "^T" report; print REA""DY'
zpty -r z out '*READY*'
while IFS= read -r line; do
    zpty -w -n z "$line"$'\\x14'
    zpty -r z out '*>>*'
    print -r -- "${${out##*<<}%%>>*}"
done <<'EOF'
%s
EOF
"""
    done = desk.run(shell("zsh"), "-f", "-c", ask.replace("%s\nEOF", "\n".join(only) + "\nEOF"))
    wanted = [line[: len(line) - len(line.split(" ")[-1])] + word for line, word in only.items()]
    assert [line.rstrip() for line in done.stdout.splitlines()] == wanted, done.stderr


def test_the_names_of_forks_load_neither_policy_nor_session(desk: Desk) -> None:
    program = (
        "import sys; from mudroom.cli.main import run; import os;"
        "run(['completion', '--values', 'forks'], os.environb);"
        "import json; print(json.dumps([name for name in sys.modules if name.startswith('mudroom.')]), file=sys.stderr)"
    )
    done = desk.run(sys.executable, "-c", program)
    loaded = json.loads(done.stderr)
    assert done.stdout.split() == ["alpha", "beta"]
    assert len(loaded) <= MODULES, len(loaded)


def test_a_path_with_a_space_is_one_line(desk: Desk) -> None:
    done = desk.run("mudroom", "completion", "--values", "paths", "alpha")
    assert done.stdout.splitlines() == ["one.txt", "two words"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "mudroom: no shell is named (mudroom completion bash, zsh, fish or man)"),
        (("tcsh",), "mudroom: there is no completion for 'tcsh' (mudroom completion bash, zsh, fish or man)"),
        (("--values", "forks", "x"), "mudroom: --values forks takes no word 'x' (mudroom completion --values forks)"),
        (("--values", "paths"), "mudroom: paths are those of a fork (mudroom completion --values paths FORK)"),
    ],
)
def test_wrong_words_are_one_line(desk: Desk, words: tuple[str, ...], said: str) -> None:
    done = desk.run("mudroom", "completion", *words)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (125, "", said)


def test_values_as_json(desk: Desk) -> None:
    done = desk.run("mudroom", "completion", "--values", "forks", "--json")
    assert json.loads(done.stdout) == {
        "schema": "mudroom.completion.values/1", "kind": "forks", "values": ["alpha", "beta"],
    }  # fmt: skip


def test_the_manual_page_is_clean(desk: Desk, tmp_path: Path) -> None:
    page = tmp_path / "mudroom.1"
    page.write_text(generated("man"))
    assert desk.run(shell("mandoc"), "-T", "lint", "-W", "warning", str(page)).stdout == ""
    done = desk.run(shell("man"), "--warnings", "-E", "UTF-8", "-l", str(page), MANWIDTH="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert "mudroom run" in done.stdout
