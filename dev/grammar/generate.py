#!/usr/bin/env python3
"""Write the grammars of programs in src/mudroom/data/options.txt anew, from the programs themselves.

``dev/grammar/generate.py FOLDER`` downloads Debian packages and Python packages into FOLDER, asks each program for its
options, and writes the table. No program does its work: the table of options is taken from the call to the
library that parses it (dump_options.c, introspect.py), else from its help or its manual page (help_text.py), else from
by_hand.txt. Names of options are facts; no text of a manual is copied.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from help_text import Row, rows_of_help

HERE = Path(__file__).resolve().parent
DATA = HERE.parent.parent / "src/mudroom/data"
DEBIAN = """
    tree ripgrep fd-find bat exa hexyl gawk diffutils colordiff xxd zstd lz4 brotli silversearcher-ag ack shellcheck
    clang-format-14 plocate ncal procps psmisc usbutils pciutils libcap2-bin acl attr most man-db cpio tidy
    libxml2-utils
    ncurses-bin bsdextrautils openssh-client moreutils pigz
"""
PYTHON = """
    uv ruff black isort mypy pylint flake8 codespell yamllint autopep8 yapf vulture bandit pydocstyle coverage twine
    virtualenv
"""
ASKED = """
    ls cat head tail wc cut tr nl od stat du df pwd basename dirname realpath readlink whoami id groups users who
    arch nproc uname uptime printenv seq sleep tac fold fmt expand unexpand pr comm join paste cksum md5sum sha1sum
    sha224sum sha256sum sha384sum sha512sum b2sum sum base32 basenc base64 factor numfmt tsort tty logname hostid
    pathchk sort shuf uniq date cp mv rm ln mkdir rmdir touch mktemp mkfifo install tee split csplit chmod chown
    chgrp truncate shred unlink link sync env nice nohup timeout stdbuf dircolors dir vdir mknod yes expr grep egrep
    fgrep sed diff diff3 sdiff cmp patch xargs make gawk column hexdump rev look cal ncal lsblk lscpu findmnt
    mountpoint lslocks lsns dmesg more free w pgrep vmstat pmap watch flock getopt ionice setsid taskset chrt getent
    locale iconv file hostname namei lsattr pstree lsusb apropos whatis getfacl setfacl getfattr getcap top slabtop
    tload ss whereis pidof col colrm ul gzip xz rsync wget
"""
BINUTILS = "nm objdump readelf size strings addr2line ar as ld strip objcopy ranlib"
"""Also asked; a word ``@FILE`` stands for the words in that file."""
HELPED = {
    "tar": "gnu", "zstd": "gnu", "lz4": "gnu", "brotli": "gnu", "cpio": "gnu", "rg": "clap", "fdfind": "clap",
    "exa": "clap", "hexyl": "clap", "ag": "gnu", "ack": "gnu", "colordiff": "gnu", "clang-format-14": "llvm@",
    "curl": "gnu",
}  # fmt: skip
"""Programs that are asked for their help, and the style in which they read their options."""
ALIASES = {
    name
    for line in (DATA / "same_options.txt").read_text().splitlines()
    if not line.startswith("#")
    for name in line.partition(": ")[2].split()
}
"""Programs that have the options of another one."""
GIT_COMMANDS = """
    log show diff blame annotate shortlog status describe ls-files grep add commit mv notes merge cherry-pick
    revert am apply switch restore checkout branch tag reset clean rm stash stash/list stash/show stash/push
    stash/pop stash/apply stash/drop stash/clear stash/branch stash/save remote remote/show remote/add
    remote/update remote/prune remote/get-url fetch pull push clone init rebase config worktree worktree/list
    worktree/add worktree/remove worktree/prune worktree/lock worktree/unlock worktree/move submodule bisect
    reflog format-patch archive gc sparse-checkout range-diff whatchanged
    diff-tree diff-index diff-files cat-file rev-list ls-tree name-rev merge-base for-each-ref
    show-ref cherry count-objects check-ignore check-attr check-mailmap check-ref-format var version fsck
    show-branch column stripspace patch-id get-tar-commit-id verify-commit verify-tag verify-pack merge-tree
    update-index write-tree commit-tree mktree hash-object symbolic-ref pack-objects pack-refs repack
    commit-graph multi-pack-index rerere read-tree checkout-index merge-file ls-remote update-ref bundle help
"""
REVISIONS = "log show shortlog whatchanged rev-list format-patch stash/list stash/show"
DIFFS = "diff diff-tree diff-index diff-files range-diff"
UV_COMMANDS = """
    tree version export add remove sync lock init venv run pip/list pip/show pip/freeze pip/check pip/tree
    pip/install pip/uninstall pip/compile pip/sync tool/list tool/dir python/list python/find python/dir
    python/install python/pin cache/dir build
"""
SEEN = """
    arch b2sum base32 base64 basename basenc cat chgrp chmod chown cksum cmp comm cp csplit cut df diff dir
    dircolors dirname du echo expand factor fmt fold grep groups head hostid id join link ln logname ls md5sum
    mkdir mkfifo mktemp mv nice nl nohup nproc numfmt od paste pathchk pr printenv ptx pwd readlink realpath rm
    rmdir seq sha1sum sha224sum sha256sum sha384sum sha512sum shred sleep stat stdbuf sum sync tac tail tee
    timeout touch tr truncate tsort tty uname unexpand uniq unlink uptime users vdir wc who whoami yes sed xargs
    column hexdump rev look cal ncal lsblk lscpu findmnt mountpoint lslocks lsns more free w pgrep vmstat pmap
    watch flock ionice setsid taskset chrt getent locale namei lsattr pstree lsusb apropos whatis getfacl
    getfattr getcap pidof col colrm ul gzip xz hexyl shellcheck colordiff c++filt which ps xxd twine gcc rustc
    javac
"""
WORDS = {"pip": [], "twine": ["upload", "x"]}
FILE = re.compile(
    r"file|dir\b|direct|path|command|\bcmd|program|prog\b|script|exec|shell|pager|config|conf\b|log\b|output|outfile|save"
    r"|plugin|hook|\burl|socket|server|proxy|template|\brc|librar|module|load|init|editor|browser|\bcert|\bkey\b|device"
    r"|\bcode\b|eval|filter|\blib\b|python|interpreter|tool|target|root|prefix|store|cache|home|import|format.?er|dest"
)
ACTS = re.compile(
    r"writ|overwrit|in.?place|delet|remov|\bfix|\bsave|install|creat|exec|\brun|edit|updat|replac|truncat|kill|upgrad"
    r"|download|upload|unlink|clean|purge|force|\bset\b|modif|apply|commit|append|clear|sync\b|move|rename|extract"
    r"|decompress|backup|load|plugin|script|hook|filter|textconv|ext-diff|watch|unsafe|break|user|global|system-wide"
)


class Shelf:
    """Grammars by program; the first source that names an option says what it is."""

    def __init__(self) -> None:
        self.styles: dict[str, str] = {}
        self.rows: dict[str, list[Row]] = {}

    def add(self, program: str, style: str, rows: Iterable[Row]) -> None:
        self.styles.setdefault(program, style)
        kept = self.rows.setdefault(program, [])
        taken = {name for row in kept for name in row.names}
        for row in rows:
            if style == "git" and row.names[0].startswith("--no-") and "--" + row.names[0][5:] in taken:
                continue
            names = tuple(dict.fromkeys(name for name in row.names if name not in taken and name not in ("-", "--")))
            if names:
                kept.append(row._replace(names=names))
                taken.update(names)

    def packed(self, program: str, review: Review) -> str:
        rows = (pack(row, review.doubts(program, row)) for row in self.rows[program])
        return " ".join([self.styles[program], *rows])


class Review:
    """The options that were looked at: dangerous.txt by hand, and reviewed.txt, which ``--review`` writes."""

    def __init__(self, write: bool) -> None:
        self.write = write
        self.dangerous = read_names(HERE / "dangerous.txt")
        self.harmless = {} if write else read_names(HERE / "reviewed.txt")

    def doubts(self, program: str, row: Row) -> bool:
        """Return whether a marked option stays marked."""
        first = program.split()[0]
        names = {name for key in (program, f"{first} *", first) for name in self.dangerous.get(key, ())}
        if row.marked or not names.isdisjoint(row.names):
            return True
        if not marked(row):
            return False
        looked_at = bool({program, f"{first} *", first} & self.dangerous.keys()) or program in SEEN.split()
        if self.write and looked_at:
            self.harmless.setdefault(program, set()).add(row.names[-1])
        return row.names[-1] not in self.harmless.get(program, ())

    def save(self) -> None:
        lines = [f"{program}: {' '.join(sorted(names))}" for program, names in sorted(self.harmless.items())]
        (HERE / "reviewed.txt").write_text(
            "# Written by generate.py --review; see dangerous.txt.\n" + "\n".join(lines) + "\n"
        )


def read_names(path: Path) -> dict[str, set[str]]:
    rows = [line.partition(": ") for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {head.rstrip(":"): set(names.split()) for head, _colon, names in rows}


def pack(row: Row, doubtful: bool) -> str:
    return ",".join(name.replace(",", ";") for name in row.names) + row.value + ("!" if doubtful else "")


def marked(row: Row) -> bool:
    if row.marked is not None:
        return row.marked
    text = " ".join((*row.names, row.text)).lower()
    if set(row.names) & {"--help", "--version", "-h", "-V"} and row.value in ("", "?"):
        return False
    return bool((FILE if row.value else ACTS).search(text)) or (bool(row.value) and not row.text.strip())


def run(argv: list[str], **extra: str) -> str:
    environment = {**os.environ, "COLUMNS": "200", "MANWIDTH": "200", "LC_ALL": "C.UTF-8", "PAGER": "cat", **extra}
    with tempfile.TemporaryDirectory() as place:
        try:
            done = subprocess.run(
                argv, capture_output=True, stdin=subprocess.DEVNULL, env=environment, timeout=60, cwd=place, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
    return (done.stdout or done.stderr).decode("utf-8", "replace")


class Source:
    """The programs that are asked, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.search = os.pathsep.join(str(self.root / place) for place in ("usr/bin", "bin", "usr/sbin", "sbin"))
        self.search = os.pathsep.join(["/usr/bin", "/bin", "/usr/sbin", "/sbin", self.search])
        self.environment = folder / "pyenv"
        self.by_hand: set[str] = set()

    def prepare(self) -> None:
        debs = self.folder / "debs"
        debs.mkdir(parents=True, exist_ok=True)
        if not list(debs.glob("*.deb")):
            subprocess.run(["apt-get", "-q", "download", *DEBIAN.split()], cwd=debs, check=True)
            for deb in debs.glob("*.deb"):
                subprocess.run(["dpkg", "-x", deb, self.root], check=True)
        if not self.environment.exists():
            subprocess.run([sys.executable, "-m", "venv", self.environment], check=True)
            subprocess.run([self.environment / "bin/pip", "-q", "install", *PYTHON.split()], check=True)
        source, library = HERE / "dump_options.c", self.folder / "dump.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", library, source], check=True)

    def program(self, name: str) -> str | None:
        return shutil.which(name, path=self.search)

    def help_of(self, program: str, name: str) -> list[Row]:
        text = run([program, "--help", "all"] if name == "curl" else [program, "--help"])
        rows = list(rows_of_help(text))
        return rows if len(rows) > 2 else list(rows_of_help(self.manual(name)))

    def manual(self, name: str) -> str:
        return run(["man", name], MANPATH=f"{self.root}/usr/share/man:/usr/share/man")

    def asked(self, name: str) -> tuple[str, list[Row]] | None:
        """Return style and options that the program hands to the library of its options."""
        program = self.program(name)
        if program is None:
            return None
        out = self.folder / "options"
        out.unlink(missing_ok=True)
        run([program, "x", "x"], LD_PRELOAD=str(self.folder / "dump.so"), GRAMMAR_OUT=str(out))
        if not out.exists():
            return None
        style, groups = "gnu", dict[str, tuple[list[str], str, str]]()
        for line in out.read_text(errors="replace").splitlines():
            first, *fields = line.split("\t")
            if first == "style":
                style = fields[0] if fields[0] != "only" else style
                continue
            long, value, key, shown = (*fields, "", "", "", "")[:4]
            if value not in ("0", "1", "2"):
                continue
            group = groups.setdefault(key + value, ([], {"0": "", "1": "=", "2": "?"}[value], shown))
            for spelled in ("-" + first if first != "-" else "", "--" + long if long != "-" else ""):
                if spelled and spelled not in group[0]:
                    group[0].append(spelled)
        shown_by_help = {spelled: row.text for row in self.help_of(program, name) for spelled in row.names}
        rows = []
        digits = [names[0][1] for names, _value, _shown in groups.values() if names[0][1:].isdigit()]
        for names, value, shown in groups.values():
            if names[0][1:].isdigit() and len(digits) == 10:
                continue
            text = " ".join([shown, *(shown_by_help.get(spelled, "") for spelled in names)])
            rows.append(Row(tuple(names), value, text))
        if len(digits) == 10:
            rows.append(Row(("-NUM",), "", "", False))
        return style, rows

    def python(self, name: str, verb: str = "") -> Iterator[tuple[str, str, list[Row]]]:
        script = self.environment / "bin" / name
        if name == "coverage" and not verb:
            for verb in ["report", "html", "xml", "json", "combine", "erase", "annotate", "lcov", "run"]:
                yield from self.python(name, verb)
            return
        words = [verb] if verb else WORDS.get(name, ["x.py"])
        text = run([str(self.environment / "bin/python"), str(HERE / "introspect.py"), str(script), *words])
        path, style, rows = "", "", list[Row]()
        for line in text.splitlines():
            kind, *fields = line.split("\t")
            if kind == "command":
                if style and (path != fields[0] or rows):
                    yield f"{name} {verb or path}".strip(), style, rows
                    rows = []
                path, style = fields
            elif kind == "option":
                rows.append(Row(tuple(fields[0].split(",")), fields[1].replace("0", ""), fields[2]))
        if style:
            yield f"{name} {verb or path}".strip(), style, rows

    def git(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield each command: its own short help, then the helper of completions, which has the hidden options too. The
        options of diff are printed outside a repository; those of revisions stand in the manual only."""
        diff = list(rows_of_help(run(["git", "diff", "-h"])))
        with tempfile.TemporaryDirectory() as place:
            subprocess.run(["git", "init", "-q", place], check=True)
            for command in GIT_COMMANDS.split():
                path = command.split("/")
                helper = run(["git", "-C", place, *path, "--git-completion-helper-all"]).split()
                rows = list(rows_of_help(run(["git", "-C", place, *path, "-h"])))
                rows += [helped(word) for word in helper if word.startswith("--")]
                if "/".join(path) in REVISIONS.split():
                    own_first = path[0] in ("format-patch", "shortlog")
                    rows = [*rows, Row(("&git~log",))] if own_first else [Row(("&git~log",)), *rows]
                if path[0] in DIFFS.split():
                    rows = [Row(("&git~diff",)), *rows]
                yield "git " + " ".join(path), rows
        revisions = [*rows_of_help(self.manual("git-log")), *rows_of_help(self.manual("git-rev-list"))]
        yield "git~diff", [*diff, *rows_of_help(self.manual("git-diff"))]
        yield "git~log", [*diff, *revisions, Row(("-NUM",), "", "", False)]

    def npm(self) -> list[Row]:
        node = "const d=require('/usr/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions');"
        node += "const o={};for(const k in d.definitions){const f=d.definitions[k];const t=[].concat(f.type);"
        node += "o[k]={n:t.includes(Boolean),s:f.short||[],t:(f.description||'')+' '+(f.hint||'')}};"
        node += "console.log(JSON.stringify([o,d.shorthands]))"
        definitions, shorthands = json.loads(run(["node", "-e", node]))
        rows = []
        for name, one in definitions.items():
            short = [one["s"]] if isinstance(one["s"], str) else one["s"]
            rows.append(Row(("--" + name, *("-" + letter for letter in short)), "" if one["n"] else "=", one["t"]))
        by_name = {row.names[0]: row for row in rows}
        for name, meant in shorthands.items():
            target = by_name.get(meant[0]) or by_name.get("--" + meant[0][5:])
            if len(meant) > 1:
                rows.append(Row(("--" + name, "-" + name), "", "", False))
            elif target is not None:
                rows.append(Row(("-" + name, "--" + name), target.value, target.text))
        return rows

    def clap(self, program: str, verbs: Iterable[str] = ()) -> Iterator[tuple[str, list[Row]]]:
        """Yield the options of a program and of its subcommands, as its help lists them."""
        todo = [()] if not verbs else [(verb,) for verb in verbs]
        while todo:
            path = todo.pop()
            text = run([program, *path, "--help"])
            yield " ".join(path), list(rows_of_help(text))
            inner = re.search(r"(?m)^Commands:\n((?:  .*\n|\n)*)", text)
            if inner and len(path) < 3:
                names = re.findall(r"(?m)^  ([a-z][a-z-]+)", inner[1])
                todo += [(*path, name) for name in names if name != "help"]


def helped(word: str) -> Row:
    """Return the row of a word of the helper, which marks required values only."""
    return Row((word.rstrip("="),), "=" if word.endswith("=") else "?", "")


def shelf_of(source: Source) -> Shelf:
    shelf = Shelf()
    missing: list[str] = []
    for line in (HERE / "by_hand.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            program, _colon, packed = line.partition(": ")
            style, *tokens = packed.split()
            source.by_hand.add(program)
            shelf.add(program, style, [token_row(token) for token in tokens])
    for name in (ASKED + BINUTILS).split():
        if name in ALIASES:
            continue
        asked = source.asked(name)
        if asked is None:
            missing.append(name)
        else:
            shelf.add(name, asked[0] + ("@" if name in BINUTILS.split() else ""), asked[1])
    for name, style in HELPED.items():
        program = source.program(name)
        if program is None:
            missing.append(name)
        else:
            shelf.add(name, style, source.help_of(program, name))
    for name in PYTHON.split():
        if name in ("uv", "ruff"):
            for path, rows in source.clap(str(source.environment / "bin" / name)):
                if name == "uv" and path and path.replace(" ", "/") not in UV_COMMANDS.split():
                    continue
                shelf.add(f"{name} {path}".strip(), "clap@" if name == "ruff" else "clap", rows)
            continue
        if name in ("flake8", "virtualenv"):
            text = run([str(source.environment / "bin" / name), "--help"])
            shelf.add(name, "argparse", rows_of_help(text))
            continue
        for path, style, rows in source.python(name):
            shelf.add(path, style, rows)
    for path, style, rows in source.python("pip"):
        shelf.add(path, style, rows)
    shelf.add("npm *", "nopt", source.npm())
    shelf.add("npm", "nopt", source.npm())
    cargo = shutil.which("cargo")
    if cargo is not None:
        verbs = "tree metadata version locate-project pkgid search info add remove fetch vendor update new init fmt" \
            " build check test run bench doc clippy fix clean install package"  # fmt: skip
        for _path, rows in source.clap(cargo):
            shelf.add("cargo", "clap", rows)
            break
        for path, rows in source.clap(cargo, verbs.split()):
            shelf.add(f"cargo {path}".strip(), "clap", rows)
    for command, rows in source.git():
        shelf.add(command, "git", rows)
    print("not here:", *missing, file=sys.stderr)
    return shelf


def token_row(token: str) -> Row:
    if token.startswith("&"):
        return Row((token,), "", "", False)
    marked, token = token.endswith("!"), token.removesuffix("!")
    value = token[-1:] if token[-1:] in "=?+*:" and len(token) > 2 else ""
    names = token.removesuffix(value).split(",")
    return Row(tuple(name.replace(";", ",") for name in names), value, "", marked)


def versions(source: Source, shelf: Shelf) -> Iterator[str]:
    """Yield lines with the versions of the programs that were asked, and the names of those that were not."""
    by_version: dict[str, list[str]] = {}
    for name in sorted({program.split()[0].partition("~")[0] for program in shelf.rows}):
        program = source.program(name) or shutil.which(name, path=str(source.environment / "bin")) or shutil.which(name)
        text = run([program, "--version"]) if program and name not in source.by_hand else ""
        number = re.search(r"\d+(?:\.\d+)+\w*", text)
        by_version.setdefault(number[0] if number else "from the manual", []).append(name)
    for version, names in sorted(by_version.items()):
        yield from textwrap.wrap(f"{version}: {' '.join(names)}", 116, subsequent_indent="    ", break_on_hyphens=False)


def write(versions: Iterable[str], grammars: Mapping[str, str]) -> None:
    """Write the table: a program or subcommand, a colon, and its packed grammar, in lines of 120 characters."""
    lines = [
        "# Options (core/command/option_grammar.py). Written by dev/grammar/generate.py, not by hand. Of versions:",
        *(f"# {line}" for line in versions),
        "",
    ]
    for program, packed in sorted(grammars.items()):
        row = f"{program}: {packed}"
        lines += textwrap.wrap(row, 120, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    (DATA / "options.txt").write_text("\n".join(lines) + "\n")


def main() -> None:
    source = Source(Path(sys.argv[1]))
    source.prepare()
    shelf = shelf_of(source)
    review = Review("--review" in sys.argv)
    write(versions(source, shelf), {program: shelf.packed(program, review) for program in shelf.rows})
    if review.write:
        review.save()
    print(len(shelf.rows))


if __name__ == "__main__":
    main()
