"""The project in which lines run: each file, what it is there for, and the tokens by which lost content is noticed.

A file that runs something writes its name into the directory ``MARKS``. A token is text of one file only: content is
lost if its token is in no file of the project any more, in no object that git reaches, and in no packed file.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

TOP = "/tmp/w"  # of the sandbox alone
PROJECT = f"{TOP}/project"
TEMPLATE = f"{TOP}/template"
HOME = f"{TOP}/home"
MARKS = "/var/tmp/marks"
PORT = 8080
SECRET = "SECRET-6b1f09"  # made up
PROXY = f"http://127.0.0.1:{PORT}/"

KEPT = "TOKEN-committed"
"""Of files that are in a commit: not lost unless the commits are."""
LOSABLE = {
    "README.md": "TOKEN-readme-edited",
    "notes.txt": "TOKEN-notes-untracked",
    "staged.txt": "TOKEN-staged-only",
    "build/out.log": "TOKEN-log-ignored",
    "src/new.py": "TOKEN-new-untracked",
    "a.zip": "TOKEN-zip-untracked",
    "a.tar": "TOKEN-tar-untracked",
}
"""Files with content that is nowhere else, and its token."""


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PLACED = words("""
    sh bash dash less more most lesspipe cat ls tee pager vi vim ed nano editor emacs ssh rsh git gpg gzip
    gunzip bzip2 xz zstd compress tar cpio zip unzip gcc cc c++ g++ as ld ld.bfd collect2 cc1 cc1plus lto-wrapper
    cpp ar nm objdump python3 python node perl ruby man troff groff grotty nroff preconv tbl col diff
    cmp patch sort awk sed grep egrep xargs find w3m lynx browser xdg-open sendmail mail make sudo su dpkg apt-
    key file strip pkg-config uname id env true git-evil git-log git-remote-evil pre-commit commit-msg prepare-
    commit-msg post-commit post-checkout post-merge pre-push pre-rebase post-index-change reference-transaction
    fsmonitor-watchman post-rewrite applypatch-msg go-evil cargo-evil kubectl-evil docker-evil npm uv pip ruff
    black mypy
""")
"""Names of programs in ``bin/``: what a program might look for."""

_SHELL = f"#!/bin/sh\n: > {MARKS}/$$.${{0##*/}}\nexit 0\n"
_EXTENSIONS = {
    "evil": _SHELL,
    "evil.sh": _SHELL,
    "evil.py": f'import os\nopen(f"{MARKS}/{{os.getpid()}}.evil.py", "w").close()\n',
    "evil.pl": f'open(my $f, ">", "{MARKS}/$$.evil.pl"); 1;\n',
    "evil.pm": f'package evil; open(my $f, ">", "{MARKS}/$$.evil.pm"); sub import {{}} 1;\n',
    "evil.rb": f'File.write("{MARKS}/#{{$$}}.evil.rb", "")\n',
    "evil.lua": f'io.open("{MARKS}/lua.evil.lua", "w"):close()\n',
    "evil.js": f'require("fs").writeFileSync("{MARKS}/" + process.pid + ".evil.js", "");\n',
    "evil.mjs": f'import fs from "node:fs"; fs.writeFileSync("{MARKS}/" + process.pid + ".evil.mjs", "");\n',
    "evil.awk": 'BEGIN { system("./evil") }\n',
    "evil.sed": "1e ./evil\n",
    "evil.vim": ":silent !./evil\n:q!\n",
    "evil.mk": "$(shell ./evil)\nall:\n\t./evil\n",
    "Makefile": "all:\n\t./evil\n",
    "evil.sql": ".shell ./evil\n",
    "evil.gdb": "shell ./evil\nquit\n",
    "evil.tcl": "exec ./evil\n",
    "evil.gitconfig": (
        "[core]\n\tfsmonitor = ./evil\n\tpager = ./evil\n\teditor = ./evil\n\tsshCommand = ./evil\n\thooksPath = bin\n"
        '[diff]\n\texternal = ./evil\n[diff "evil"]\n\tcommand = ./evil\n\ttextconv = ./evil\n'
        '[filter "evil"]\n\tclean = ./evil\n\tsmudge = ./evil\n[alias]\n\tco = !./evil\n[gpg]\n\tprogram = ./evil\n'
        "[credential]\n\thelper = !./evil\n[uploadpack]\n\tpackObjectsHook = ./evil\n[user]\n\tname = u\n\temail = e\n"
    ),
    "evil.rc": "!./evil\nexec = ./evil\npager = ./evil\n",
    "evil.lesskey": "#env\nLESSOPEN=|./evil %s\n#command\nq quit\n",
    "evil.curlrc": "output = README.md\n",
    "evil.wgetrc": "use_askpass = ./evil\noutput_document = README.md\n",
    "evil.toml": '[tool.pylint.main]\ninit-hook = "import evil"\n[tool.mypy]\nplugins = ["./evil.py"]\n',
    "evil.ini": "[MAIN]\ninit-hook=import evil\n[mypy]\nplugins=./evil.py\n[flake8:local-plugins]\nextension=X=evil:f",
    "evil.yaml": "extends: ./evil.js\nplugins: [./evil.js]\n",
    "evil.json": '{"plugins": ["./evil.js"]}\n',
    "evil.spec": "*link:\n./evil\n",
    "evil.magic": "0\tstring\tx\tx\n",
    "evil.ld": "INPUT(evil.so)\n",
    "opts": "-o README.md\n",
    "opts.plugin": "--plugin ./evil.so\n",
    "opts.wrapper": "-wrapper ./evil\n",
    "opts.run": "--init-hook=import evil\n",
    "list": "notes.txt\nREADME.md\n",
    "list0": "notes.txt\0README.md\0",
    "sums": "d41d8cd98f00b204e9800998ecf8427e  notes.txt\n",
    "change.patch": "--- a/data.csv\n+++ b/data.csv\n@@ -1,2 +1,2 @@\n-a,b\n+c,d\n 1,2\n",
    "data.json": '{"name": "x", "version": "1.0.0", "list": [1, 2]}\n',
    "data.csv": "a,b\n1,2\n",
    "x.i": "int main(void) { return 0; }\n",
    "src/main.py": f"import os\nimport sys\n\n\ndef main():\n    x = {{'a':1}}  # {KEPT}\n    return  x\n",
    "src/new.py": f"# {LOSABLE['src/new.py']}\ny = 1\n",
    "src/util.c": f"/* {KEPT} */\n#include <stdio.h>\nint main(void) {{ return 0; }}\n",
    "README.md": f"# readme\n{KEPT}\nteh end\n",
    "notes.txt": f"notes\n{LOSABLE['notes.txt']}\n",
    "staged.txt": f"{LOSABLE['staged.txt']}\n",
    "build/out.log": f"{LOSABLE['build/out.log']}\n",
    ".gitignore": "/build/\n/bin/\nevil*\nopts*\n",
    ".gitattributes": "*.md diff=evil filter=evil\n",
    "one/two/deep.txt": f"{KEPT}\n",
    "pyproject.toml": '[project]\nname = "x"\nversion = "1"\n',
    "package.json": '{"name": "x", "version": "1.0.0", "scripts": {"test": "./evil"}}\n',
}
_UNTRACKED = ("notes.txt", "src/new.py", "a.zip", "a.tar")
_TOPIC = f"{KEPT} of topic\n"


def make(shared_object: bytes) -> None:
    """Make the template, the home and the directory of marks. ``shared_object``: ``evil.so``; empty: none."""
    shutil.rmtree(TOP, ignore_errors=True)
    for directory in (TEMPLATE, HOME, f"{HOME}/.ssh", MARKS, f"{TEMPLATE}/bin"):
        os.makedirs(directory, exist_ok=True)
    for name, text in _EXTENSIONS.items():
        _write(name, text.encode())
    for name in PLACED:
        _write(f"bin/{name}", _SHELL.encode())
    if shared_object:
        _write("evil.so", shared_object)
        _write("prog", shared_object)
    _archives()
    _write_home()
    for name in ("evil", "evil.sh", "evil.py", "prog"):
        if os.path.exists(f"{TEMPLATE}/{name}"):
            os.chmod(f"{TEMPLATE}/{name}", 0o755)
    _repository()
    _write("README.md", f"# readme\n{LOSABLE['README.md']}\nteh end\n".encode())


def git(*words: str, where: str = PROJECT, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run git without any configuration but its defaults, for the harness itself."""
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a",
        "GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000", "GIT_OPTIONAL_LOCKS": "0",
    }  # fmt: skip
    plain = ("-c", "core.hooksPath=/nonexistent", "-c", "core.fsmonitor=false", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", f"--git-dir={where}/.git", f"--work-tree={where}", *plain, *words],
        cwd="/", env=environment, capture_output=True, check=False, input=given, timeout=20,
    )  # fmt: skip


def _repository() -> None:
    def here(*words: str) -> None:
        done = git(*words, where=TEMPLATE)
        if done.returncode:
            sys.exit(f"git {words}: {done.stderr.decode()}")

    here("init", "-q", "--template=")
    here("add", "-f", *(name for name in _EXTENSIONS if name not in (*_UNTRACKED, "staged.txt", "build/out.log")))
    here("commit", "-qm", "first")
    here("checkout", "-qb", "topic")
    _write("topic.txt", _TOPIC.encode())
    here("add", "topic.txt")
    here("commit", "-qm", "topic")
    here("checkout", "-q", "main")
    shutil.rmtree(f"{TEMPLATE}/.git/logs", ignore_errors=True)
    here("tag", "v1")
    here("config", "user.name", "u")
    here("config", "user.email", "e")
    here("add", "staged.txt")
    here("gc", "-q")
    here("update-index", "-q", "--refresh")


def _archives() -> None:
    with zipfile.ZipFile(f"{TEMPLATE}/a.zip", "w") as archive:
        archive.writestr("README.md", f"unpacked {LOSABLE['a.zip']}\n")
        archive.writestr("in/zip.txt", "zip\n")
    with tarfile.open(f"{TEMPLATE}/a.tar", "w") as tar:
        for name in ("README.md", "in/tar.txt"):
            content = f"unpacked {LOSABLE['a.tar']}\n".encode()
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def _write_home() -> None:
    for name, text in ((".bashrc", "# rc\n"), (".ssh/id_ed25519", f"{SECRET}\n"), (".profile", "# profile\n")):
        with open(f"{HOME}/{name}", "w") as stream:
            stream.write(text)


def _write(name: str, content: bytes) -> None:
    path = f"{TEMPLATE}/{name}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as stream:
        stream.write(content)
    if name.startswith("bin/"):
        os.chmod(path, 0o755)
