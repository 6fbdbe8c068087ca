"""Files that a tool runs by their name: found by watching the tool, and tried in a sandbox.

    python tests/later_generator.py [TOOL...]      as root or not; needs strace(1)

For each tool that is installed: a small project, and the tool's command in it under strace(1). Each name below the
project that the tool looks for is a candidate. Each candidate is then written with each of the tool's payloads, and the
command runs in a sandbox: a payload that ran has made a file. What ran, and whether its change has the flag
``executes-later``, is written to ``runs_later_found.txt``. No row of ``data/runs_later.txt`` is read for it.

Not found: names that a tool takes from a listing (``test_*.py``), and names in directories that do not exist.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOUND = Path(__file__).with_name("runs_later_found.txt")
MADE = ".ran-later"
"""The file that a payload makes, in the project."""

PAYLOADS = {
    "sh": "touch {ran}\n",
    "sh+x": "#!/bin/sh\ntouch {ran}\n",
    "python": "open({ran!r}, 'w')\n",
    "perl": "open(my $ran, '>', '{ran}'); 1;\n",
    "js": "require('fs').writeFileSync('{ran}', '')\n",
    "ruby": "File.write('{ran}', '')\n",
    "tcl": "close [open {{{ran}}} w]\n",
    "lua": "io.open('{ran}', 'w'):close()\n",
    "make": "RAN := $(shell touch {ran})\nall:\n\t@touch {ran}\n",
    "cmake": "file(WRITE {ran} x)\n",
    "ninja": "rule ran\n command = touch {ran}\nbuild all: ran\n",
    "vim": "call writefile([''], '{ran}')\n",
    "gdb": "shell touch {ran}\n",
    "tmux": "run-shell 'touch {ran}'\n",
    "sqlite": ".shell touch {ran}\n",
    "psql": "\\! touch {ran}\n",
    "git": "[core]\n\tfsmonitor = touch {ran};\n\tpager = touch {ran}\n[alias]\n\tst = !touch {ran}\n",
    "npm": '{{"name": "x", "version": "1.0.0", "scripts": {{"test": "touch {ran}", "prepare": "touch {ran}"}}}}\n',
    "php": "<?php touch('{ran}');\n",
    "zsh": "touch {ran}\n",
    "pylint": "[MASTER]\ninit-hook=open('{ran}', 'w')\n",
    "behave": "from behave import *\nopen('{ran}', 'w')\n",
    "json": '{{"require": "./payload.js", "presets": ["./payload.js"], "plugins": ["./payload.js"]}}\n',
}


class Tool(NamedTuple):
    program: str
    command: str
    payloads: str
    setup: str = ""
    """Run by sh(1) in the empty project."""


GIT = (
    "git init -q; git config user.name a; git config user.email a@b; echo a > a; git add a; git commit -qm a; echo > a"
)
DEBIAN = (
    "mkdir debian; printf 'x (1) unstable; urgency=low\\n\\n  * a\\n\\n -- a <a@b>  Thu, 01 Jan 1970 00:00:00 +0000\\n'"
    " > debian/changelog"
)
CARGO = (
    "mkdir src; echo 'fn main() {}' > src/main.rs; printf '[package]\\nname=\"x\"\\nversion=\"0.1.0\"\\n' > Cargo.toml"
)
MJS = "echo '{}' > package.json; echo 1 > a.js; mkdir test; echo 1 > test/a.js"
PY = "printf 'import json, sqlite3, unittest\\n' > main.py; printf 'def test_a():\\n    pass\\n' > test_a.py"
SETUP_PY = 'printf \'from setuptools import setup\\nsetup(name="x", py_modules=["main"])\\n\' > setup.py; '
TOOLS = (
    Tool("make", "make", "make", "printf 'all: main.o\\n-include local.mk\\n' > Makefile; echo 'int a;' > main.c"),
    Tool("make", "make", "make"),
    Tool("git", "git commit -qam b", "sh+x git", GIT),
    Tool("git", "git checkout -qb x; git merge -q x; git stash -q; git st", "sh+x git", GIT),
    Tool("git", "HOME=$PWD git status", "sh+x git", GIT),
    Tool("python3", "python3 main.py", "python", PY),
    Tool("python3", "python3 -m unittest", "python", PY),
    Tool("python3", "python3 -m pytest -q -p no:cacheprovider", "python", PY),
    Tool(
        "python3",
        "python3 -m pip install -q --no-build-isolation --no-deps --no-index --target t .",
        "python",
        SETUP_PY + PY,
    ),
    Tool("python3", "python3 setup.py -q build", "python", SETUP_PY + PY),
    Tool("python3", "echo c | HOME=$PWD python3 -m pdb main.py", "sh python", PY),
    Tool("python3", "echo | HOME=$PWD python3 -i -c 'print(1)'", "python", PY),
    Tool("sphinx-build", "sphinx-build -q -b text . out", "python", "echo x > index.rst; echo > conf.py"),
    Tool("mypy", "mypy main.py", "python", PY),
    Tool("ipython", "HOME=$PWD ipython -c 1", "python"),
    Tool("perl", "perl main.pl", "perl", "echo 'use strict; require Foo;' > main.pl"),
    Tool("perl", "echo q | HOME=$PWD perl -d main.pl", "perl", "echo 1 > main.pl"),
    Tool(
        "perl",
        "perl Makefile.PL && make",
        "perl make",
        "echo 'use ExtUtils::MakeMaker; WriteMakefile(NAME=>\"x\");' > Makefile.PL",
    ),
    Tool("prove", "prove", "perl sh", "mkdir t; echo 'print \"1..1\\nok 1\\n\"' > t/a.t"),
    Tool(
        "node",
        "node main.js",
        "js npm",
        'echo \'try { require("./a") } catch {}; try { require("b") } catch {}\' > main.js',
    ),
    Tool("npm", "HOME=$PWD npm install --offline --no-audit --no-fund", "npm js sh", "echo '{}' > package.json"),
    Tool("npm", "HOME=$PWD npm test", "npm js sh", 'echo \'{"scripts": {"test": "true"}}\' > package.json'),
    Tool("cmake", "cmake -S . -B b", "cmake", "printf 'project(x C)\\ninclude(extra OPTIONAL)\\n' > CMakeLists.txt"),
    Tool("ctest", "ctest", "cmake", ""),
    Tool("ninja", "ninja", "ninja", ""),
    Tool("gdb", "HOME=$PWD gdb -batch -ex q ./prog", "gdb python", "cp /bin/true prog"),
    Tool("vim", "HOME=$PWD vim -es -N -u NORC -c q a", "vim sh", "echo a > a"),
    Tool("vim", "HOME=$PWD vim -T dumb --not-a-term -c q a", "vim sh", "echo a > a"),
    Tool("bash", "HOME=$PWD bash -lic true", "sh"),
    Tool("bash", "HOME=$PWD bash -ic true", "sh"),
    Tool("zsh", "HOME=$PWD zsh -lic true", "zsh"),
    Tool("fish", "HOME=$PWD fish -lic true", "sh"),
    Tool("dash", "HOME=$PWD dash -lic true", "sh"),
    Tool(
        "tmux",
        "HOME=$PWD TMUX_TMPDIR=$PWD tmux -L x new -d true; sleep 0.2; TMUX_TMPDIR=$PWD tmux -L x kill-server",
        "tmux",
    ),
    Tool("sqlite3", "echo .quit | HOME=$PWD sqlite3", "sqlite"),
    Tool("psql", "HOME=$PWD psql -c 1", "psql"),
    Tool("tclsh", "echo exit | HOME=$PWD script -qc tclsh /dev/null", "tcl"),
    Tool("cargo", "cargo build --offline -q", "sh+x sh", CARGO),
    Tool("gcc", "gcc -c main.c", "sh+x sh", "echo 'int a;' > main.c"),
    Tool("mvn", "HOME=$PWD mvn -q -o validate", "sh sh+x", "echo '<project/>' > pom.xml"),
    Tool("ruby", "ruby main.rb", "ruby", "echo 'require_relative \"a\" rescue LoadError' > main.rb"),
    Tool("rake", "HOME=$PWD rake", "ruby"),
    Tool("irb", "echo exit | HOME=$PWD irb", "ruby"),
    Tool("lua5.4", "lua5.4 main.lua", "lua", "echo 'pcall(require, \"a\")' > main.lua"),
    Tool("scons", "scons -Q", "python", "echo > SConstruct"),
    Tool("autoconf", "autoconf", "sh perl", "echo AC_INIT > configure.ac"),
    Tool("php", "php main.php", "php", "echo '<?php' > main.php"),
    Tool("dpkg-buildpackage", "dpkg-buildpackage -d -b", "make sh+x", DEBIAN),
    Tool("nox", "nox", "python"),
    Tool("inv", "HOME=$PWD inv a", "python"),
    Tool("pylint", "HOME=$PWD pylint main.py", "pylint python", PY),
    Tool("flake8", "flake8 main.py", "python", PY),
    Tool("coverage", "coverage run main.py", "python", PY),
    Tool("doit", "doit", "python"),
    Tool(
        "behave",
        "behave",
        "behave",
        "mkdir features; printf 'Feature: a\n  Scenario: b\n    Given c\n' > features/a.feature",
    ),
    Tool("mkdocs", "mkdocs build -q", "python", "mkdir docs; echo a > docs/index.md; echo 'site_name: a' > mkdocs.yml"),
    Tool("mocha", "mocha", "js json", MJS),
    Tool("gulp", "gulp", "js json", MJS),
    Tool("grunt", "grunt", "js json", MJS),
    Tool("eslint", "HOME=$PWD eslint a.js", "js json", MJS),
    Tool("prettier", "prettier a.js", "js json", MJS),
    Tool("jest", "jest", "js json", MJS),
    Tool("webpack", "webpack --mode none", "js json", MJS + "; mkdir src; echo 1 > src/index.js"),
    Tool("less", "HOME=$PWD less a < /dev/null", "sh", "echo a > a"),
    Tool("bc", "HOME=$PWD bc < /dev/null", "sh"),
)
_CALL = re.compile(r'\((?:AT_FDCWD(?:<[^>]*>)?|\d+<(?P<at>[^>]*)>)?,? ?"(?P<path>(?:[^"\\]|\\.)+)"')


def candidates(tool: Tool, project: Path) -> list[str]:
    """Return the names below the project that the tool looks for or reads."""
    log = project.parent / "log"
    subprocess.run(["sh", "-c", tool.setup], cwd=project, capture_output=True, check=False)
    subprocess.run(
        ["strace", "-f", "-qq", "-y", "-e", "trace=%file", "-o", log, "sh", "-c", tool.command],
        cwd=project, capture_output=True, stdin=subprocess.DEVNULL, timeout=120, check=False,
    )  # fmt: skip
    names = set()
    for line in log.read_text("utf-8", "replace").splitlines():
        match = _CALL.search(line)
        if match is None or not re.search(r"= (-1 ENOENT|\d+)", line):
            continue
        path = os.path.normpath(os.path.join(project, match["at"] or "", match["path"]))
        below = os.path.relpath(path, project)
        if not below.startswith(".."):
            names.add(below)
    left = (f"{MADE}", ".", ".git/objects", ".git/refs", ".git/index", ".git/logs", "t/", "out/", "b/CMakeFiles")
    given = {*left[:2], *tool.command.split()}
    """The user names these each time."""
    return sorted(name for name in names if not name.startswith(left[2:]) and name not in given)[:60]


LOOP = r"""
import json, os, shutil, subprocess, sys
plan = json.load(open("plan.json"))
found = []
for name, kind, content in plan["tries"]:
    shutil.rmtree("w", ignore_errors=True); os.mkdir("w"); os.chdir("w")
    try:
        subprocess.run(["sh", "-c", plan["setup"]], capture_output=True)
        if os.path.isdir(name): continue
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        ran = os.path.abspath(plan["made"])
        with open(name, "w") as stream: stream.write(content.replace("@RAN@", ran))
        if kind.endswith("+x"): os.chmod(name, 0o755)
        subprocess.run(["sh", "-c", plan["command"]], capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
        if os.path.exists(ran): found.append([name, kind])
    except (OSError, subprocess.TimeoutExpired): pass
    finally: os.chdir("..")
print("FOUND " + json.dumps(found))
"""


def main(chosen: list[str]) -> Iterator[str]:
    from mudroom.session import Session

    for tool in TOOLS:
        if shutil.which(tool.program) is None or (chosen and tool.program not in chosen):
            continue
        with tempfile.TemporaryDirectory() as top:
            project = Path(top, "project")
            project.mkdir()
            names = candidates(tool, project)
            shutil.rmtree(project)
            project.mkdir()
            tries = [
                (name, kind, PAYLOADS[kind].format(ran="@RAN@")) for name in names for kind in tool.payloads.split()
            ]
            plan = {"tries": tries, "setup": tool.setup, "command": tool.command, "made": MADE}
            (project / "plan.json").write_text(json.dumps(plan))
            (project / "loop.py").write_text(LOOP)
            session = Session.open(
                os.fsencode(project),
                state=os.fsencode(f"{top}/state"),
                home=os.fsencode(Path.home()),
                environ=os.environb,
            )
            try:
                result = session.run([b"python3", b"loop.py"], fork="tries")
                said = result.stdout.decode().rpartition("FOUND ")[2]
                found = json.loads(said) if said else []
                contents = {(name, kind): content for name, kind, content in tries}
                for name, kind in found:
                    quoted, above = shlex.quote(name), shlex.quote(os.path.dirname(name) or ".")
                    script = f"{tool.setup}\nmkdir -p {above}; rm -f {quoted}; cat > {quoted} <<'END'\n"
                    script += f"{contents[name, kind]}\nEND\nchmod {755 if kind.endswith('+x') else 644} {quoted}"
                    flags = session.run([b"sh", b"-c", script.encode()], fork="flags").changeset
                    change = next((each for each in flags.changes if each.path == name.encode()), None)
                    is_flagged = change is not None and "executes-later" in change.flags
                    word = "flagged" if is_flagged else "private" if change is None else "missed"
                    yield f"{tool.program} | {tool.command} | {name} | {kind} | {word}"
                    session.forks.discard("flags")
                sys.stderr.write(f"{tool.command}: {len(names)} names, {len(tries)} tries, {len(found)} ran\n")
            finally:
                session.close()


if __name__ == "__main__":
    rows = []
    for row in main(sys.argv[1:]):
        rows.append(row)
        sys.stdout.write(row + "\n")
        sys.stdout.flush()
    if not sys.argv[1:]:
        FOUND.write_text("\n".join(sorted(set(rows))) + "\n")
