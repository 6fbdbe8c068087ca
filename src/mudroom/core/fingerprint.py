"""What an approval of a command is tied to: its words and place, what was said about it, and the files that it names.

An approval given for ``bash build.sh`` must not hold for another content of ``build.sh``. Files are told in two ways:

* those that are *run*: a program of the project, the script that an interpreter is given, what a build tool reads by
  itself (``IMPLIED``). Each of them is covered, or there is no fingerprint (``Uncovered``);
* all others that a word names, as far as they are not too many and too large.

What such a file reads in turn is not covered: modules, included files, hooks. The sandbox is the boundary, not this.
"""

from __future__ import annotations

from _blake2 import blake2b
from collections.abc import Callable, Iterable, Iterator, Sequence

from mudroom.core.approval import CommandQuestion
from mudroom.core.path import show
from mudroom.core.verdict import Part, Verdict

Read = Callable[[bytes, int], bytes | None]
"""The content of a regular file at an absolute path of the view, found as open(2) would find it; None if there is none.
If it has more bytes than the second says: at least one more than that many. ``stage/lookup.py`` has one."""
LARGEST = 64 << 20
"""Bytes of a file that is run."""
LARGEST_NAMED = 4 << 20
"""Bytes of another one."""
MOST_RUN, MOST_NAMED = 256, 256
"""Paths that are looked at."""

_SHELLS = (b"sh", b"bash", b"dash", b"zsh", b"ksh", b"fish", b"source", b".")
_LANGUAGES = (
    b"python", b"node", b"deno", b"bun", b"ruby", b"perl", b"php", b"lua", b"Rscript", b"awk", b"tsx", b"ts-node",
)  # fmt: skip
_WRAPPERS = (
    b"env", b"sudo", b"doas", b"nohup", b"timeout", b"nice", b"ionice", b"xargs", b"find", b"exec", b"command", b"time",
    b"setsid", b"stdbuf", b"strace", b"parallel", b"watch",
)  # fmt: skip
"""Programs that run another one."""
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
"""Program → files that it reads by itself, in the directory where it runs or in one that it is given."""


class Uncovered(ValueError):
    """A file that would be run is too large, or there are too many: no approval could be tied to it."""


def question_about(
    command: Sequence[bytes],
    cwd: bytes,
    fork: str,
    agent: str,
    verdict: Verdict,
    parts: Sequence[Part],
    pattern: str,
    level: int,
    read: Read,
) -> CommandQuestion:
    """The question about a command as everything is now. Made a second time before the command runs, it shows by
    ``holds`` whether the answer is about what runs. Raises Uncovered, and what ``read`` raises."""
    files = digests(parts, command, cwd, read)
    mark = fingerprint(command, cwd, fork, agent, verdict, level, files)
    return CommandQuestion(tuple(command), cwd, fork, agent, verdict, pattern, mark, files)


def digests(parts: Sequence[Part], words: Sequence[bytes], cwd: bytes, read: Read) -> tuple[tuple[bytes, str], ...]:
    """Path and digest of each file of the view that the command runs or names, by path. ``words`` are those of the
    command itself, ``parts`` what was found in it. Raises Uncovered, and what ``read`` raises."""
    lines = [tuple(words), *(part.words for part in parts)]
    bases = [cwd, *(_join(cwd, line[1]) for line in lines if len(line) > 1 and line[0] in (b"cd", b"pushd"))]
    found: dict[bytes, str] = {}
    run = _some(_paths(bases, _run(lines)), MOST_RUN)
    if len(run) > MOST_RUN:
        raise Uncovered(f"it runs more than {MOST_RUN} files")
    for path in run:
        content = read(path, LARGEST)
        if content is not None and len(content) > LARGEST:
            raise Uncovered(f"{show(path)} is larger than {LARGEST >> 20} MiB")
        if content is not None:
            found[path] = _digest(content)
    named = _paths(bases, (name for line in lines for name in _named(line)))
    for path in _some((path for path in named if path not in found), MOST_NAMED)[:MOST_NAMED]:
        content = read(path, LARGEST_NAMED)
        if content is not None:
            found[path] = _digest(content) if len(content) <= LARGEST_NAMED else "large"
    return tuple(sorted(found.items()))


def fingerprint(
    command: Sequence[bytes],
    cwd: bytes,
    fork: str,
    agent: str,
    verdict: Verdict,
    level: int,
    files: Iterable[tuple[bytes, str]],
) -> str:
    """BLAKE2b over all of it, each field with its length, so that no two questions look the same."""
    hasher = blake2b(digest_size=16)

    def add(*fields: bytes) -> None:
        hasher.update(b"%d;" % len(fields) + b"".join(b"%d:" % len(field) + field for field in fields))

    add(*command)
    add(cwd, _bytes(fork), _bytes(agent), b"%d" % level)
    add(_bytes(verdict.action), _bytes(verdict.rule))
    add(*map(_bytes, verdict.classes))
    for path, digest in files:
        add(path, _bytes(digest))
    return hasher.hexdigest()


def holds(question: CommandQuestion, now: str) -> bool:
    """Whether an answer to ``question`` is one to what has this fingerprint now: to be looked at after the answer has
    come, when nobody else can change the fork any more."""
    return bool(now) and question.fingerprint == now


def _run(lines: Iterable[Sequence[bytes]]) -> Iterator[bytes]:
    """Names of what is run, as they stand in the command."""
    for line in lines:
        wrapped = bool(line) and line[0].rpartition(b"/")[2] in _WRAPPERS
        for at, word in enumerate(line):
            if b"/" in word and (at == 0 or (wrapped and not word.startswith(b"-"))):
                yield word
            program = word.rpartition(b"/")[2]
            if _interprets(program):
                yield from _scripts(line[at + 1 :])
            for name in IMPLIED.get(program, ()):
                yield name
                yield from (operand.rstrip(b"/") + b"/" + name for operand in _operands(line[at + 1 :]))


def _operands(words: Sequence[bytes]) -> list[bytes]:
    return [word for word in words if not word.startswith(b"-")][:4]


def _scripts(words: Sequence[bytes]) -> Iterator[bytes]:
    """What an interpreter may be given to run: an option may have an argument, so it is not only the first."""
    yield from _operands(words)
    if b"-m" in words[:-1]:  # python -m
        module = words[words.index(b"-m") + 1].replace(b".", b"/")
        yield from (module + b".py", module + b"/__main__.py")


def _interprets(program: bytes) -> bool:
    return program in _SHELLS or program.rstrip(b"0123456789.") in _LANGUAGES


def _named(line: Sequence[bytes]) -> Iterator[bytes]:
    for word in line:
        yield word
        _option, equals, value = word.partition(b"=")
        if equals:
            yield value


def _paths(bases: Sequence[bytes], names: Iterable[bytes]) -> Iterator[bytes]:
    for name in names:
        if name and len(name) < 4096 and b"\0" not in name and b"\n" not in name:
            for base in bases:
                yield _join(base, name)


def _some(paths: Iterable[bytes], most: int) -> list[bytes]:
    """Each once, and at most one more than so many."""
    found: dict[bytes, None] = {}
    for path in paths:
        found[path] = None
        if len(found) > most:
            break
    return list(found)


def _join(base: bytes, name: bytes) -> bytes:
    """Absolute. ``..`` stays: where it leads depends on the links before it, which ``read`` follows."""
    parts = (name if name.startswith(b"/") else base + b"/" + name).split(b"/")
    return b"/" + b"/".join(part for part in parts if part not in (b"", b"."))


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
