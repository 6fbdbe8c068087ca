"""The files that a command runs, judging by its words: its directories, an interpreter's argument, a build tool's
files.

Rules of this file:

1. A file that may be run is listed rather than left out: a name that does not exist only costs a lookup.
2. A file that is *certainly* run, as far as the words show, is marked: if it cannot be read, no approval covers the
   command.
3. If a word that decides the file is unknown before the command runs, ``Uncovered`` is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mudroom.core.command.program.classification import UNKNOWN_PROGRAM
from mudroom.core.command.shell.grammar import tree_of
from mudroom.core.command.shell.quoting import word_of
from mudroom.core.command.table_rule import INFORMS
from mudroom.core.command.verdict import CommandPart
from mudroom.core.command.word import Word
from mudroom.core.tree.path import show

MOST_PLACES = 64
"""Most directories in which a command may run."""
_LONGEST = 128 << 10
_SHELLS = (
    b"sh", b"bash", b"dash", b"zsh", b"ksh", b"mksh", b"ash", b"rbash", b"csh", b"tcsh", b"fish", b"source", b".",
)  # fmt: skip
_LINE_RUNNERS = (*_SHELLS, b"eval", b"watch", b"trap", b"su", b"flock")
"""Programs that take a shell line in a single word."""
_LANGUAGES = (
    b"python", b"pypy", b"node", b"nodejs", b"deno", b"bun", b"ruby", b"perl", b"php", b"lua", b"luajit", b"Rscript",
    b"awk", b"gawk", b"mawk", b"nawk", b"tsx", b"ts-node", b"tclsh", b"wish", b"julia", b"osascript",
)  # fmt: skip
_WRAPPERS = (
    b"env", b"sudo", b"doas", b"nohup", b"timeout", b"nice", b"ionice", b"xargs", b"find", b"exec", b"command", b"time",
    b"setsid", b"stdbuf", b"strace", b"parallel", b"watch",
)  # fmt: skip
"""Programs that run another program."""
_SHELL_FLAGS, _PYTHON_FLAGS = frozenset(b"euxvlnfa"), frozenset(b"uBEsSOqbvPI")
"""Option letters that take no value."""
_DIRECTORY_LETTERS = {
    **dict.fromkeys((b"env", b"make", b"gmake", b"ninja", b"git", b"cargo", b"go", b"meson", b"poetry"), b"C"),
    **dict.fromkeys((b"pnpm", b"npm", b"yarn", b"bun", b"uv", b"hatch", b"composer"), b"C"),
    **dict.fromkeys((b"sudo",), b"D"),
    **dict.fromkeys((b"just", b"task", b"composer"), b"d"),
}
"""Program → option letter that sets its directory."""
_DIRECTORY_OPTIONS = (
    b"--chdir", b"--directory", b"--prefix", b"--cwd", b"--dir", b"--working-directory", b"--working-dir", b"--project",
)  # fmt: skip
_PACKAGE = (b"package.json", b".npmrc")
IMPLIED: dict[bytes, tuple[bytes, ...]] = {
    b"make": (b"GNUmakefile", b"makefile", b"Makefile"),
    b"gmake": (b"GNUmakefile", b"makefile", b"Makefile"),
    b"ninja": (b"build.ninja",),
    b"cmake": (b"CMakeLists.txt",),
    b"meson": (b"meson.build",),
    b"just": (b"justfile", b"Justfile", b".justfile"),
    b"task": (b"Taskfile.yml", b"Taskfile.yaml"),
    b"npm": _PACKAGE,
    b"npx": _PACKAGE,
    b"yarn": (*_PACKAGE, b".yarnrc.yml"),
    b"pnpm": _PACKAGE,
    b"bun": _PACKAGE,
    b"deno": (b"deno.json", b"deno.jsonc"),
    b"cargo": (b"Cargo.toml", b"build.rs"),
    b"go": (b"go.mod",),
    b"mvn": (b"pom.xml",),
    b"gradle": (b"build.gradle", b"build.gradle.kts", b"settings.gradle", b"settings.gradle.kts"),
    b"gradlew": (b"build.gradle", b"build.gradle.kts", b"settings.gradle", b"settings.gradle.kts"),
    b"ant": (b"build.xml",),
    b"rake": (b"Rakefile", b"rakefile"),
    b"bundle": (b"Gemfile",),
    b"composer": (b"composer.json",),
    b"pip": (b"pyproject.toml", b"setup.py", b"setup.cfg"),
    b"pip3": (b"pyproject.toml", b"setup.py", b"setup.cfg"),
    b"uv": (b"pyproject.toml", b"setup.py"),
    b"poetry": (b"pyproject.toml",),
    b"pdm": (b"pyproject.toml",),
    b"hatch": (b"pyproject.toml",),
    b"tox": (b"tox.ini", b"pyproject.toml", b"setup.cfg"),
    b"nox": (b"noxfile.py",),
    b"invoke": (b"tasks.py",),
    b"pytest": (b"conftest.py", b"pyproject.toml", b"pytest.ini"),
    b"pre-commit": (b".pre-commit-config.yaml",),
    b"docker": (b"Dockerfile", b"compose.yaml", b"docker-compose.yml"),
    b"docker-compose": (b"compose.yaml", b"docker-compose.yml"),
    b"git": (b".git/config",),
}
"""Program → files that it reads by default, in its directory or in one that it is given."""


class Uncovered(ValueError):
    """An approval cannot cover a file: too large, too many, or unknown before the command runs."""


def require_known(parts: Sequence[CommandPart]) -> None:
    """Raise Uncovered if any part's program, code or directory is unknown."""
    for part in parts:
        if part.complete:
            continue
        if not part.words:
            if part.reason == UNKNOWN_PROGRAM:
                raise Uncovered("the program is not known before it runs")
            continue
        name, rest = _base(part.words[0]), part.words[1:]
        if name in (b"cd", b"pushd"):
            raise Uncovered(f"the directory of {show(name)} is not known before it runs")
        if (_interprets(name) and not _has_code(rest)) or (name in IMPLIED and not _directory_is_settled(name, rest)):
            raise Uncovered(f"the code that {show(name)} runs is not known before it runs")


def working_directories(lines: Iterable[Sequence[bytes]], cwd: bytes) -> list[bytes]:
    """Return the directories in which the command may run. Each change of directory applies to all earlier directories.
    Raise Uncovered if there are too many."""
    paths = {cwd: None}
    for line in lines:
        for target in _directory_changes(line):
            paths |= dict.fromkeys([join(base, target) for base in paths])
            if len(paths) > MOST_PLACES:
                raise Uncovered("it changes its directory too often")
    return list(paths)


def executed_files(lines: Sequence[Sequence[bytes]]) -> Iterator[tuple[bytes, bool]]:
    """Yield the names, as written, of files that may be run, and whether each is certainly run. Raise Uncovered if an
    input is unknown before the command runs."""
    bare = any(line and _interprets(_base(line[0])) and not _has_code(line[1:]) for line in lines)
    fed = any(_runs_stdin(line) for line in lines)
    for line in lines:
        if fed:  # by a pipe: files that the other commands read
            yield from ((word, True) for word in line[1:] if not word.startswith(b"-"))
        program = _base(line[0]) if line else b""
        wrapped = program in _WRAPPERS
        for at, word in enumerate(line):
            if b"/" in word and (at == 0 or (wrapped and not word.startswith(b"-"))):
                yield (
                    word,
                    at == 0 or program == b"strace",
                )  # the command that another wrapper runs is a part of its own
            name, rest = _base(word), line[at + 1 :]
            if _interprets(name):
                yield from ((script, sure and (at == 0 or wrapped)) for script, sure in _scripts(name, rest))
            if name in IMPLIED:
                yield from ((file, sure and (at == 0 or wrapped)) for file, sure in _implied(name, rest))
        if program in _LINE_RUNNERS:
            for source in _inputs(line[1:]):
                if source.literal:
                    yield source.text, bare
                elif bare:
                    raise Uncovered("the input that it runs is not known before it runs")


def join(base: bytes, name: bytes) -> bytes:
    """Return an absolute path. ``..`` stays: its target depends on the symlinks before it, which ``read`` follows."""
    parts = (name if name.startswith(b"/") else base + b"/" + name).split(b"/")
    return b"/" + b"/".join(part for part in parts if part not in (b"", b"."))


def _base(word: bytes) -> bytes:
    return word.rpartition(b"/")[2]


def _interprets(program: bytes) -> bool:
    return program in _SHELLS or program.rstrip(b"0123456789.") in _LANGUAGES or program == b"."


def _has_code(words: Sequence[bytes]) -> bool:
    """Return whether the known words certainly hold the script or code that an interpreter runs."""
    return bool(words) and (not words[0].startswith(b"-") or any(_takes_code(word) for word in words[:-1]))


def _runs_stdin(line: Sequence[bytes]) -> bool:
    informs = len(line) == 2 and line[1] in INFORMS
    return bool(line) and _interprets(_base(line[0])) and not informs and all(word[:1] == b"-" for word in line[1:])


def _takes_code(option: bytes) -> bool:
    if option.startswith(b"--"):
        return option in (b"--eval", b"--command", b"--file", b"--execute")
    return option.startswith(b"-") and option[-1:] in (b"c", b"e", b"m", b"f", b"r")


def _directory_is_settled(program: bytes, words: Sequence[bytes]) -> bool:
    """Return whether a build tool's unknown words can no longer change its directory."""
    verb = program in (b"git", b"docker", b"docker-compose") and words[:1] != () and not words[0].startswith(b"-")
    return verb or b"--" in words


def _directory_changes(line: Sequence[bytes]) -> Iterator[bytes]:
    if line and line[0] in (b"cd", b"pushd"):
        over = line.index(b"--") + 1 if b"--" in line else 1
        operands = [word for word in line[over:] if over > 1 or not word.startswith(b"-")]
        if line[0] == b"cd" and len(line) == over:
            raise Uncovered("it changes to the home directory")
        yield from operands[:1]
    for at, word in enumerate(line):
        letter = _DIRECTORY_LETTERS.get(_base(word))
        if letter is not None:
            yield from (
                value for option, value in _option_values(line[at + 1 :], letter) if option in _DIRECTORY_OPTIONS
            )


def _option_values(words: Sequence[bytes], letter: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield options by their full names with their values, attached or not. ``letter``: the short option that sets the
    directory."""
    for word, following in zip(words, (*words[1:], b""), strict=False):
        if word.startswith(b"--") and len(word) > 3:
            head, equals, value = word.partition(b"=")
            name = next((name for name in _DIRECTORY_OPTIONS if name.startswith(head)), head)
            yield name, value if equals else following
        elif word.startswith(b"-") and letter in word[1:] and not word.startswith(b"--"):
            yield _DIRECTORY_OPTIONS[0], word[1:].partition(letter)[2] or following


def _scripts(program: bytes, words: Sequence[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield an interpreter's possible scripts: an option may take a value, so not only the first word counts."""
    free, valued = 0, False
    for at, word in enumerate(words):
        if word.startswith(b"-") and word != b"-":
            yield from ((value, True) for value in _attached(word))
            if word.startswith(b"-m"):  # python -m
                module = (word[2:] or b"".join(words[at + 1 : at + 2])).replace(b".", b"/")
                yield from ((module + b".py", True), (module + b"/__main__.py", True))
            valued = not _is_flag(program, word)
            if _is_code_next(program, word):  # a line and no name: the commands in it are parts of their own
                free, valued = free + 1, False
            continue
        yield word, free == 0
        free += not valued
        valued = False
        if free == 4:
            return


def _is_flag(program: bytes, option: bytes) -> bool:
    letters = _SHELL_FLAGS if program in _SHELLS else _PYTHON_FLAGS if program.startswith(b"python") else frozenset()
    return letters >= set(option[1:])


def _is_code_next(program: bytes, option: bytes) -> bool:
    """Return whether the word after this option is code. Where that is not certain, it may be the script."""
    if program in (b"source", b"."):
        return False
    if program in _SHELLS:
        return option[-1:] == b"c" and _is_flag(program, option[:-1])
    if program.startswith((b"python", b"pypy")):
        return option[-1:] == b"c" and _is_flag(b"python", option[:-1])
    return option in (b"-e", b"-ne", b"-pe", b"--eval") and program not in (b"awk", b"gawk", b"mawk", b"nawk")


def _attached(option: bytes) -> Iterator[bytes]:
    """Yield the value of ``--file=VALUE``, ``-fVALUE``, ``-sfVALUE``."""
    if option.startswith(b"--"):
        yield option.partition(b"=")[2]
    else:
        yield from dict.fromkeys((option[2:], option[1:].partition(b"f")[2]))


def _implied(program: bytes, words: Sequence[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield the files that a build tool reads by default, in the current directory and in directories that it is given,
    and a file named instead. git's operands are not directories to run in."""
    operands = [word for word in words if not word.startswith(b"-")][:4]
    attached = [value for word in words if word.startswith(b"-") for value in _attached(word)]
    for name in IMPLIED[program]:
        yield name, True
        for directory in (*operands, *filter(None, attached)):
            yield directory.rstrip(b"/") + b"/" + name, program != b"git" and directory in operands
    for word, following in zip(words, (*words[1:], b""), strict=False):
        head, equals, value = word.partition(b"=")
        if word.startswith(b"--") and b"file" in head:
            yield value if equals else following, True
        elif word.startswith(b"-") and not word.startswith(b"--") and b"f" in word:
            yield word.partition(b"f")[2] or following, program != b"git"


def _inputs(words: Iterable[bytes]) -> Iterator[Word]:
    """Yield the targets after ``<`` in shell lines."""
    for line in words:
        if b"<" not in line or b"\0" in line or len(line) > _LONGEST:
            continue

        nodes = [tree_of(line)]
        while nodes:
            node = nodes.pop()
            nodes += node.children
            if node.type == "file_redirect" and any(child.type in ("<", "<>") for child in node.children):
                targets = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
                yield from map(word_of, targets[:1])
