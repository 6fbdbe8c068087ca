"""Readers of small languages, with the program itself as the oracle: texts are drawn at random, the program runs them
where it can only do planted things, and the judge may not say less than what it did.

A text runs in a directory with the program ``./evil``, which leaves the file ``ran``. Any other change of the directory
is a write.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mudroom.core.command.program.classification import classify_line, classify_words
from mudroom.core.command.verdict import CommandClass
from tiers import SEED

PROJECT = b"/home/dev/shop"
Draw = random.Random
IN_CI = 60
"""Texts for each reader: ten seconds of processor time in all."""
IN_DEEP = 6000


def pieces(draw: Draw, fragments: Sequence[str], signs: Sequence[str], most: int = 4) -> str:
    """Return fragments with signs between them."""
    count = draw.randint(1, most)
    return "".join(draw.choice(fragments) + (draw.choice(signs) if at < count - 1 else "") for at in range(count))


def of_sed(draw: Draw) -> list[str]:
    address = ["", "", "", "1", "$", "/a/", "1,2", "/a/I,$", "9!", "0~2 ", "\\,a,", "1,+1", "/[/]/", "\\;a;"]
    quiet = [
        "p",
        "d",
        "=",
        "h",
        "G",
        "n",
        "{",
        "{p",
        "D",
        "z",
        "b",
        "t",
        "T",
        ":a",
        "t a",
        ": a",
        "q",
        "l",
        "l 1",
        "#c",
        "F",
    ]
    quiet += [
        "s/a/b/", "s/q/z/", "s/q/z/ i", "s/a/b/g p", "s/a/./M", "y/a/b/", "s/[/]/b/", "s/a\\/b/c/", "sxaxbx",
        "y,a,b, ",
    ]  # fmt: skip
    quiet += [
        "a\\",
        "a\\\n",
        "a x",
        "i x",
        "i\\\nx",
        "c x\\",
        "r a",
        "R a",
        "}",
        "bb",
        "s/a/b/;",
        "s/x/y/gI #",
        "v",
        "#n",
    ]
    acting = [
        "e./evil", "e ./evil", "w new", "W new", "wnew", "s/a/b/w new", "s/.*/.\\/evil/e", "s,.*,./evil,e", "e",
        "}e./evil",
    ]  # fmt: skip
    acting += ["s/.*/.\\/evil/ e", "s/a/b/ w new", "s/a/b/gw new", "{e./evil\n}", "}\ne./evil", "}w new"]

    def script() -> str:
        most = draw.choice([0, 1, 1, 1, 2, 3])
        signs = [";", "\n", "\n", " ", " ;", "\t\n", "}", " }", "\\\n", "", "\r\n", ";;\n", "\v", "\f;"]
        begun = [draw.choice(address) + draw.choice(quiet) + draw.choice(signs) for _text in range(most)]
        return "".join(begun) + draw.choice(address) + draw.choice(acting)

    options = draw.choice([[], [], ["-n"], ["-s"], ["-E"], ["-z"], ["-i"], ["--posix"], ["-l1"]])
    if draw.random() < 0.7:
        return ["sed", *options, script(), "a"]
    first = draw.choice(address) + draw.choice(quiet) + draw.choice(["", "\\", ";", "{"])
    return ["sed", *options, "-e", first, "-e", script(), "a"]


def of_awk(draw: Draw) -> list[str]:
    texts = ['system("./evil")', "print", "print $1", 'print > "new"', 'print "x" >> "new"', '"./evil" | getline']
    texts += ['print | "./evil"', "/a/", "{ print }", "BEGIN { x = 1 }", "x > 1", "a | b", "# system", 'printf "%s", 1']
    texts += ['"./evil" | getline x', "getline < a", 'close("a")', "s = 1", 'print(1)("x") > "new"', 'print "a" "b"']
    text = pieces(
        draw, [f"BEGIN {{ {one} }}" if draw.random() < 0.6 else one for one in texts], [";", "\n", " ", "\\\n"]
    )
    options = draw.choice([[], [], ["-F:"], ["-F", ":"], ["-v", "x=1"], ["--"], ["-f", "script.awk"], ["-vx=1"]])
    return [draw.choice(["awk", "mawk"]), *options, text, "a"]


def of_find(draw: Draw) -> list[str]:
    parts = [["-name", "a"], ["-exec", "./evil", ";"], ["-exec", "./evil", "{}", "+"], ["-delete"], ["-fprint", "new"]]
    parts += [["-type", "f"], ["-name", "-delete"], ["-fls", "new"], ["-fprintf", "new", "x"], ["-ok", "./evil", ";"]]
    parts += [
        ["-execdir", "./evil", ";"], ["-newer", "a"], ["("], [")"], ["!"], ["-o"], ["-prune"], ["-quit"], ["-D", "a"],
    ]  # fmt: skip
    parts += [["-exec", "true", "+"], ["-exec", "true", "{}", "+"], ["-exec", "echo", ";"], ["-printf", "-exec"], [","]]
    parts += [
        ["-exec", "env", "./evil", ";"],
        ["-exec", "sed", "-i", "s/a/b/", "{}", ";"],
        ["-exec", "sh", "-c", "./evil", ";"],
    ]
    roots = draw.choice([[], ["."], ["a"], ["-L", "."], [".", "sub"], ["-O3", "."], ["--", "."]])
    return ["find", *roots, *[word for _part in range(draw.randint(1, 4)) for word in draw.choice(parts)]]


def of_tar(draw: Draw) -> list[str]:
    mode = draw.choice([["tf"], ["-tf"], ["-t", "-f"], ["xf"], ["-xf"], ["--list", "-f"], ["--get", "--file"], ["xOf"]])
    parts = [["--to-command=./evil"], ["--to-com", "./evil"], ["--checkpoint=1", "--checkpoint-action=exec=./evil"]]
    parts += [
        ["-I", "./evil"], ["-I./evil"], ["--use-compress=./evil"], ["-C", "sub"], ["-O"], ["-v"],
        ["--keep-old-files"],
    ]  # fmt: skip
    parts += [
        ["--index-file=new"], ["--index", "new"], ["-F", "./evil"], ["--info-script=./evil"], ["-k"], ["--wildcards"],
    ]  # fmt: skip
    parts += [
        ["--one-top-level=new"], ["--strip=1"], ["-vI./evil"], ["--null"], ["--rmt-command=./evil"], ["-m"], ["-M"],
    ]  # fmt: skip
    return ["tar", *mode, "a.tar", *[word for _part in range(draw.randint(0, 3)) for word in draw.choice(parts)]]


STARTED = [
    ["./evil"], ["echo"], ["sh", "-c", "./evil"], ["touch", "new"], ["cat"], ["rm"], ["sed", "p"], ["env", "./evil"],
]  # fmt: skip


def of_xargs(draw: Draw) -> list[str]:
    parts = [
        ["-n1"], ["-n", "1"], ["-I", "{}"], ["-I{}"], ["-i"], ["-0"], ["-r"], ["-P", "2"], ["-a", "a"], ["-aa"],
        ["-L1"],
    ]  # fmt: skip
    parts += [
        ["--arg-file=a"], ["--max-args", "1"], ["-d", "x"], ["--rep"], ["--replace=x"], ["-t"], ["-s", "999"], ["--"],
    ]  # fmt: skip
    parts += [["-E", "end"], ["-e"], ["-l"], ["-x"], ["-o"], ["--process-slot-var=X"], ["--max-procs=1"], ["--no-run"]]
    options = [word for _part in range(draw.randint(0, 3)) for word in draw.choice(parts)]
    return ["xargs", *options, *draw.choice(STARTED), *draw.choice([[], ["{}"], ["x"], ["a"]])]


def of_env(draw: Draw) -> list[str]:
    parts = [
        ["-i"], ["-u", "X"], ["X=1"], ["-S", "./evil"], ["-S./evil x"], ["-S", "X=1 ./evil"], ["-C", "sub"], ["--"],
    ]  # fmt: skip
    parts += [
        ["--split-string=./evil"],
        ["--split=sh -c ./evil"],
        ["-vS", "touch new"],
        ["-S", "touch\\_new"],
        ["--chdir=sub"],
    ]
    parts += [
        ["-S", "-i ./evil"],
        ["-S", "echo ./evil"],
        ["-S", "#c ./evil"],
        ["-"],
        ["-iS", "./evil"],
        ["-S", "-S ./evil"],
    ]
    options = [word for _part in range(draw.randint(0, 3)) for word in draw.choice(parts)]
    return ["env", *options, *draw.choice([*STARTED, [], []])]


def of_jq(draw: Draw) -> list[str]:
    texts = [".", ".a", "env", "$ENV.PATH", "input", 'import "m" as m; .', "debug", "@sh", "halt", "inputs", "[.[]]"]
    options = draw.choice(
        [[], ["-r"], ["-n"], ["--arg", "x", "1"], ["-L", "."], ["-f", "a"], ["--slurpfile", "x", "a"]]
    )
    return ["jq", *options, pieces(draw, texts, ["|", ",", " "]), "a"]


def of_git(draw: Draw) -> list[str]:
    before = [
        ["-c", "alias.x=!./evil"],
        ["-c", "core.pager=./evil"],
        ["--paginate"],
        ["-p"],
        ["-c", "diff.external=./evil"],
    ]
    before += [["-c", "core.fsmonitor=./evil"], ["--no-pager"], ["-C", "."], ["-c", "core.sshCommand=./evil"], ["-P"]]
    before += [["--config-env=core.fsmonitor=EVIL"], ["--exec-path=."], ["-c", "color.ui=always"], ["--git-dir=.git"]]
    verbs = [["x"], ["status"], ["diff"], ["log"], ["show"], ["ls-files"], ["grep", "-O./evil", "a"], ["grep", "a"]]
    verbs += [["diff", "--ext-diff"], ["diff", "--output=new"], ["log", "--output", "new"], ["show", "--textconv"]]
    verbs += [["archive", "-o", "new", "HEAD"], ["grep", "--open-files-in-pager=./evil", "a"], ["rev-parse", "HEAD"]]
    verbs += [
        ["rev-parse", "--sq-quote", "a"],
        ["ls-remote", "--upload-pack=./evil", "."],
        ["ls-remote", "ext::./evil"],
    ]
    verbs += [
        ["branch"], ["branch", "new"], ["tag", "-l"], ["tag", "new"], ["stash", "list"], ["ls-files", ":(top)*.py"],
    ]  # fmt: skip
    verbs += [["blame", "a"], ["bisect", "run", "./evil"], ["submodule", "foreach", "./evil"], ["var", "GIT_EDITOR"]]
    verbs += [["for-each-ref", "--shell"], ["cat-file", "--textconv", "HEAD:a"], ["config", "--get", "user.name"]]
    verbs += [
        ["diff", "--no-index", "a", "evil"],
        ["ls-files", ":(attr:x)*"],
        ["shortlog"],
        ["help", "-a"],
        ["--version"],
    ]
    return ["git", *[word for _part in range(draw.randint(0, 2)) for word in draw.choice(before)], *draw.choice(verbs)]


def of_bash(draw: Draw) -> list[str]:
    values = ["x[$(./evil)]", "a[`./evil`]", "1", "x", "PATH", "a[0$(./evil)0]", "x[1]", "y"]
    value = draw.choice(values)
    shapes = [
        "printf -v '{}' x", "printf -v '{}' '%s' 1", "[[ '{}' -eq 1 ]]", "test -v '{}'", "[ -v '{}' ]",
        "[[ -v '{}' ]]",
    ]  # fmt: skip
    shapes += [
        "let '{}'", "x='{}'; echo $((x))", "x='{}'; echo ${{a[x]}}", "read '{}' < a", "declare '{}=1'", "unset '{}'",
    ]  # fmt: skip
    shapes += ["x='{}'; echo ${{!x}}", "x='{}'; echo ${{PATH:x}}", "export '{}=1'", "mapfile -C ./evil -c 1 < a"]
    shapes += ["x='{}'; declare -i n=x", "wait -p '{}' -n", "x='$(./evil)'; echo ${{x@P}}", "printf '%s' '{}'"]
    shapes += ["echo '{}' > >(cat)", "cat <<E\n{}\nE", "cat <<'E'\n{}\nE", "case '{}' in *) ;; esac", "(( '{}' ))"]
    return ["bash", "-c", draw.choice(shapes).format(value)]


READERS: dict[str, Callable[[Draw], list[str]]] = {
    "sed": of_sed, "awk": of_awk, "find": of_find, "tar": of_tar, "xargs": of_xargs, "env": of_env, "git": of_git,
    "bash": of_bash,
}  # fmt: skip
"""Programs whose words may be judged mildly. An editor, make or perl is unknown whatever its words."""
if shutil.which("jq", path=os.defpath):
    READERS["jq"] = of_jq


class Jail:
    """A directory in which a text runs, made again after a change."""

    def __init__(self, place: Path) -> None:
        self.place, self._pattern = place / "project", place / "pattern"
        self.environment = {"PATH": os.defpath, "HOME": str(place), "GIT_CONFIG_NOSYSTEM": "1", "EVIL": "./evil"}
        (self._pattern / "sub").mkdir(parents=True)
        for name, text in {
            "evil": "#!/bin/sh\n: > ran\n[ -e ../ran ] || : > ${0%/evil}/ran\n", "a": "a\nb/c\n", "m.jq": "def f: 1;\n",
            "Makefile": "X := $(shell ./evil)\nall:\n\t+./evil\n", "script.awk": 'BEGIN { system("./evil") }\n',
        }.items():  # fmt: skip
            (self._pattern / name).write_text(text)
        (self._pattern / "evil").chmod(0o755)
        shutil.copy(self._pattern / "evil", self._pattern / "sub/evil")
        subprocess.run(["tar", "cf", "a.tar", "a"], cwd=self._pattern, check=True)
        commit = ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "a"]
        for words in (["init", "-q", "--template="], ["add", "a"], commit):
            subprocess.run(["git", *words], cwd=self._pattern, check=True, env=self.environment)
        self._make()
        self._before = self._contents()

    def _make(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self._pattern, self.place)

    def _contents(self) -> dict[str, bytes]:
        files = [Path(folder, name) for folder, _folders, names in os.walk(self.place) for name in names]
        return {str(file): file.read_bytes() for file in files if file.name != "index" and file.is_file()}

    def effects(self, argv: Sequence[str]) -> set[str]:
        """Return what the program does with these words: ``ran``, ``wrote``."""

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
            resource.setrlimit(resource.RLIMIT_CPU, (1, 1))

        with open(self.place / "a", "rb") as given:
            try:
                subprocess.run(argv, cwd=self.place, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env=self.environment, timeout=5, check=False, preexec_fn=limit)  # fmt: skip
            except (FileNotFoundError, subprocess.TimeoutExpired):
                pass  # what it did until then counts
        after = self._contents()
        changed = {name for name in after.keys() | self._before.keys() if after.get(name) != self._before.get(name)}
        if changed:
            self._make()
        return {"ran" if name.endswith("/ran") else "wrote" for name in changed}


NEEDED: dict[str, set[CommandClass]] = {
    "ran": {"unknown", "host_escape_risk"},
    "wrote": {"mutating", "destructive", "unknown", "host_escape_risk"},
}


def too_mild(reader: str, count: int, seed: str, place: Path) -> tuple[list[str], int]:
    """Return the texts that are judged too mildly, of ``count`` that are not judged to run a program, and how many had
    an effect."""
    draw, jail, found, effective = random.Random(f"{reader}{seed}"), Jail(place), list[str](), 0
    for _text in range(10 * count):
        argv = READERS[reader](draw)
        judged = classify_words([word.encode() for word in argv], PROJECT, PROJECT).classes
        if count == 0 or not NEEDED["ran"].isdisjoint(judged):
            continue
        count -= 1
        effects = jail.effects(argv)
        effective += bool(effects)
        found += [f"{argv}: {judged}, {effect}" for effect in effects if NEEDED[effect].isdisjoint(judged)]
    return found, effective


@pytest.mark.parametrize("reader", READERS)
def test_a_program_does_no_more_than_judged(reader: str, tmp_path: Path) -> None:
    assert too_mild(reader, IN_CI, SEED, tmp_path)[0] == []


@pytest.mark.deep
@pytest.mark.parametrize("reader", READERS)
def test_a_program_does_no_more_than_judged_long(reader: str, tmp_path: Path) -> None:
    assert too_mild(reader, IN_DEEP, SEED, tmp_path)[0] == []


@pytest.mark.parametrize("line", ["sed 't\ne' a", "sed 'b\nwFILE' a", "sed 's/q/z/ i;e./evil' a", "sed ':a\\\ne' a"])
def test_a_sed_script_that_hides_a_command(line: str) -> None:
    assert classify_line(line.encode(), PROJECT, PROJECT).strictest == "unknown"
