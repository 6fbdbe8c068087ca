"""Lines of a program: its options with values that do harm if they are interpreted, in many positions and shells.

Pure and seeded: the same programs and seed give the same lines.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .option import Option
from .world import PROXY, words

RUN = (
    "./evil", "evil", "./evil.py", "./evil.so", "|./evil", "!./evil", "sh ./evil", "bin", "./bin/", "import evil",
    "evil.py",
)  # fmt: skip
"""Values that name code."""
CONFIGURE = (
    "evil.gitconfig", "evil.rc", "evil.ini", "evil.toml", "evil.lesskey", "evil.json", "evil.yaml", "evil.vim",
    "evil.mk", "evil.awk", "evil.sed", "evil.gdb", "evil.curlrc", "evil.wgetrc", "opts", "@opts", "opts.plugin",
    "@opts.plugin", "@opts.run", "evil.js", "evil.lua", "evil.pl", "list", "evil.spec", "evil.ld",
)  # fmt: skip
"""Values that name a file with options or settings."""
WRITE = ("README.md", "new.out", "notes.txt", "src", "build", "./new.out", "-o README.md", "one/new.out")
"""Values that name a file or directory to write."""
REACH = (PROXY, "127.0.0.1", "127.0.0.1:8080", "ext::./evil", "git://127.0.0.1/x", "example.com")
"""Values that name a host."""
OTHER = ("1", "0", "all", "auto", "x", ".", "-", "a=b", "always", "yes")
FIRST = ("./evil", "README.md", "new.out")
"""Values that every option is tried with; the others are drawn."""
VALUES = (*RUN, *CONFIGURE, *WRITE, *REACH, *OTHER)
SOFTENERS = (
    "-n", "--dry-run", "-l", "--list", "-t", "--test", "--check", "--diff", "-c", "--stdout", "-p", "-v", "-q", "-h",
    "--help", "--version", "-V", "-Z", "--quiet", "-s", "--get", "-L", "--no-pager", "--show", "--print",
)  # fmt: skip
"""Options with which some program only reads."""
SETTINGS = (
    "./evil", "|./evil %s", "||./evil %s", "bin", "./bin/", ".", "evil.gitconfig", "evil.rc", "evil.lesskey",
    "./evil.so", "-o README.md", "-m", "--plugin=./evil.so", "README.md", "new.out", "1", "-wrapper ./evil",
    "-B./bin/", "@opts", "--use-compress-program=./evil", "-I./evil", "import evil", "evil", "-Mevil", "./evil.py",
    "-r ./evil.js", "--require=./evil.js", "http://127.0.0.1:8080/", "file://README.md", "tee README.md", "e=evil.rc",
    "./",
)  # fmt: skip
"""Values of variables of the environment."""
VARIABLES = words("""
    PATH LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT BASH_ENV ENV EDITOR VISUAL PAGER MANPAGER GIT_PAGER GIT_EDITOR
    GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_CONFIG GIT_DIR
    GIT_EXEC_PATH GIT_PROXY_COMMAND GIT_ASKPASS SSH_ASKPASS GIT_TEMPLATE_DIR GIT_TRACE GIT_TRACE2
    GIT_TRACE2_EVENT GIT_TRACE_PACKET GIT_TRACE_SETUP GIT_TRACE_CURL GIT_INDEX_FILE GIT_OBJECT_DIRECTORY
    GIT_SEQUENCE_EDITOR GIT_CONFIG_PARAMETERS LESS LESSOPEN LESSCLOSE LESSKEY LESSKEYIN LESSKEYIN_SYSTEM
    LESSKEY_CONTENT LESSHISTFILE LESSEDIT LESS_TERMCAP_md MORE MANOPT MANLESS MANROFFOPT MANPATH TROFF
    GROFF_TYPESETTER GROFF_COMMAND_PREFIX GROFF_BIN_PATH ZIPOPT ZIP UNZIP UNZIPOPT ZIPINFO ZIPINFOOPT GZIP BZIP
    BZIP2 XZ_OPT XZ_DEFAULTS ZSTD_CLEVEL TAR_OPTIONS TAPE RSH RSYNC_RSH RSYNC_PROXY RSYNC_CONNECT_PROG
    RSYNC_PARTIAL_DIR RSYNC_OLD_ARGS CPIO_OPTIONS GREP_OPTIONS GREP_COLORS COMPILER_PATH GCC_EXEC_PREFIX
    LIBRARY_PATH CPATH C_INCLUDE_PATH DEPENDENCIES_OUTPUT SUNPRO_DEPENDENCIES COLLECT_GCC GCC_COMPARE_DEBUG
    COLLECT_GCC_OPTIONS LTO LDEMULATION LD_RUN_PATH AR_OPTIONS PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTHONINSPECT
    PYTHONWARNINGS PYTHONBREAKPOINT PYTHONUSERBASE PYTHONPLATLIBDIR PERL5OPT PERL5LIB PERL5DB PERLLIB RUBYOPT
    RUBYLIB NODE_OPTIONS NODE_PATH LUA_INIT LUA_PATH JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS MAKEFLAGS
    MAKEFILES GNUMAKEFLAGS MAKE SHELL CONFIG_SITE M4PATH PIP_CONFIG_FILE PIP_INDEX_URL PIP_TARGET
    PIP_REQUIREMENT PIP_LOG PIP_CACHE_DIR PIP_PYTHON UV_PYTHON UV_CONFIG_FILE UV_INDEX_URL UV_CACHE_DIR
    UV_PROJECT_ENVIRONMENT npm_config_userconfig npm_config_script_shell npm_config_viewer NPM_CONFIG_PREFIX
    npm_config_cache npm_config_node_options RUFF_CACHE_DIR MYPY_CACHE_DIR BLACK_CACHE_DIR PYLINTRC PYLINTHOME
    COVERAGE_RCFILE COVERAGE_PROCESS_START COVERAGE_FILE VIRTUALENV_CONFIG_FILE RIPGREP_CONFIG_PATH BAT_PAGER
    BAT_CONFIG_PATH BAT_OPTS ACKRC ACK_OPTIONS ACK_PAGER FZF_DEFAULT_COMMAND JQ_COLORS CURL_HOME WGETRC
    SYSTEM_WGETRC http_proxy https_proxy ALL_PROXY all_proxy SSLKEYLOGFILE NETRC CURL_CA_BUNDLE SSH_AUTH_SOCK
    GNUPGHOME OPENSSL_CONF OPENSSL_ENGINES OPENSSL_MODULES HOSTALIASES RES_OPTIONS LOCALDOMAIN GCONV_PATH
    LOCPATH NLSPATH TZDIR TZ TERMINFO TERMINFO_DIRS TERMCAP TERMPATH TMPDIR XDG_CONFIG_HOME XDG_CONFIG_DIRS
    XDG_DATA_HOME XDG_CACHE_HOME HOME CDPATH IFS PS4 PROMPT_COMMAND SHELLOPTS BASHOPTS INPUTRC HISTFILE FCEDIT
    MALLOC_TRACE MALLOC_CHECK_ LD_DEBUG_OUTPUT LD_PROFILE LD_PROFILE_OUTPUT LD_SHOW_AUXV GMON_OUT_PREFIX
    GCOV_PREFIX ASAN_OPTIONS UBSAN_OPTIONS APT_CONFIG DPKG_ROOT DPKG_COLORS DPKG_PAGER DPKG_ADMINDIR
    SYSTEMD_PAGER SYSTEMD_EDITOR SYSTEMD_LESS SYSTEMD_LOG_TARGET PSQLRC PSQL_PAGER PSQL_EDITOR PGSERVICEFILE
    PGPASSFILE PGSYSCONFDIR SQLITE_HISTORY MAGIC DIFF_OPTIONS PATCH_VERSION_CONTROL SIMPLE_BACKUP_SUFFIX
    VERSION_CONTROL QUOTING_STYLE BLOCK_SIZE COLUMNS LS_COLORS TIME_STYLE TIME DEBUGINFOD_URLS
    DEBUGINFOD_CACHE_PATH GDBHISTFILE STRACE_OPTS VIMINIT EXINIT VIM GOFLAGS GOTOOLDIR GOPROXY GOENV GOROOT CC
    CXX LD AS AR NM STRIP OBJDUMP PKG_CONFIG CMAKE_GENERATOR CARGO_HOME RUSTC_WRAPPER BROWSER DOCKER_HOST
    DOCKER_CONFIG KUBECONFIG KUBE_EDITOR TF_CLI_CONFIG_FILE TF_LOG_PATH LOCATE_PATH FINDOPTS WHICH_OPTS
    PROCPS_FROMLEN PS_FORMAT PS_PERSONALITY LSOF_OPTS TREE_COLORS UPDATEDB
""")
"""Variables that some program reads; those of the manual pages are added to them."""
WRAPPED = (
    "bash -c {q}", "sh -c {q}", "dash -c {q}", "bash -lc {q}", "bash --norc -c {q}", "busybox sh -c {q}", "env {l}",
    "env -u X {l}", "env X=1 {l}", "env -S {q}", "timeout 5 {l}", "timeout -k 1 5 {l}", "nice -n 1 {l}", "nohup {l}",
    "stdbuf -o0 {l}", "setsid -w {l}", "ionice -c3 {l}", "command {l}", "exec {l}", "time {l}",
    "echo README.md | xargs {l}", "xargs -a list {l}", "xargs -I% {l}", "echo x | xargs -n1 {l}",
    "find . -maxdepth 0 -exec {l} \\;", "find README.md -exec {l} +", "ls | {l}", "{l} | cat", "x=$({l})",
    "echo `{l}`", 'echo "$({l})"', "( {l} )", "{{ {l}; }}", "if {l}; then :; fi", "{l} & wait", "! {l}", "cat <({l})",
    "f() {{ {l}; }}; f", "for i in 1; do {l}; done", "while {l}; do break; done", "true && {l}", "false || {l}",
    "{l} > /dev/null 2>&1", "{l} 2> /dev/null < README.md", "cd src && cd .. && {l}", "[[ -f README.md ]] && {l}",
    "case x in x) {l};; esac", "cat <<E\n$({l})\nE", "bash <<< {q}", "trap {q} EXIT", "flock new.lock {l}",
    "taskset 1 {l}", "setarch -R {l}", "script -qc {q} /dev/null", "A=1 {l}", "coproc {l}; wait", "eval {q}",
    "sh -ec {q}", "bash -o pipefail -c {q}", "env -i PATH=/usr/bin:/bin HOME=/tmp {l}", "chronic {l}",
    "strace -f -o /dev/null {l}", "[ 1 ] && {l}", "watch -n9 -t {q}", "doas {l}", "sudo {l}", "parallel {q} ::: 1",
    "ls\n{l}", "{l} || true", "{l}; echo done",
)  # fmt: skip
"""Shells, wrappers and constructs around a line. ``{l}``: the line; ``{q}``: the line as one word."""


class Program(NamedTuple):
    words: tuple[str, ...]
    """The program, and its subcommand if it has them."""
    options: tuple[Option, ...]
    operands: tuple[tuple[str, ...], ...]
    """Operands with which it does its work; one of them is drawn."""
    variables: tuple[str, ...] = ()
    """Variables of the environment that its texts name."""


class Call(NamedTuple):
    words: tuple[str, ...]
    options: tuple[str, ...]
    operands: tuple[str, ...]
    environment: tuple[str, ...] = ()

    def text(self) -> str:
        assigned = [
            f"{name}={shlex.quote(value)}" for name, _sign, value in (e.partition("=") for e in self.environment)
        ]
        return " ".join([*assigned, shlex.join((*self.words, *self.options, *self.operands))])


def first_calls(program: Program) -> Iterator[Call]:
    """Yield each option alone, and with each value of ``FIRST``, separate and attached."""
    for operands in program.operands:
        yield Call(program.words, (), operands)
        for option in program.options:
            yield Call(program.words, (option.name,), operands)
            for value in FIRST:
                for given in written(option.name, value):
                    yield Call(program.words, given, operands)


def drawn_calls(program: Program, chance: random.Random) -> Iterator[Call]:
    """Yield, without an end, calls with drawn options, values, variables and positions."""
    names = [option.name for option in program.options] or ["-x"]
    while True:
        operands = chance.choice(program.operands)
        kind = chance.random()
        if kind < 0.15:
            variable = chance.choice(program.variables or VARIABLES)
            yield Call(program.words, (), operands, (f"{variable}={chance.choice(SETTINGS)}",))
        elif kind < 0.6:
            yield Call(
                program.words, chance.choice(list(written(chance.choice(names), chance.choice(VALUES)))), operands
            )
        else:
            options: list[str] = []
            for _each in range(chance.randint(1, 3)):
                name = chance.choice(names)
                drawn = [(name,), *written(name, chance.choice(VALUES)), (name, chance.choice(SOFTENERS))]
                options += chance.choice(drawn)
            call = Call(program.words, tuple(options), operands)
            yield chance.choice(list(changed(call, program, chance)) or [call])


def set_calls(program: Program) -> Iterator[Call]:
    """Yield the program with each variable set to each value of ``SETTINGS``."""
    for variable in sorted({*VARIABLES, *program.variables}):
        for value in SETTINGS:
            yield Call(program.words, (), program.operands[0], (f"{variable}={value}",))


def written(name: str, value: str) -> Iterator[tuple[str, ...]]:
    """Yield the ways to write an option with a value."""
    yield (name, value)
    yield (f"{name}={value}",) if name.startswith("--") or len(name) > 2 else (f"{name}{value}",)


def changed(call: Call, program: Program, chance: random.Random) -> Iterator[Call]:
    """Yield the same call with abbreviations, clusters, other positions, and options that soften or swallow."""
    called, options, operands, environment = call
    names = [option.name for option in program.options]
    flags = [name for name in names if len(name) == 2]
    longs = [name for name in names if name.startswith("--")]
    if options:
        head, sign, value = options[0].partition("=")
        if head.startswith("--"):
            for length in sorted({len(head) - 1, (len(head) + 3) // 2, 5, 4, 3}):
                if 3 <= length < len(head):
                    yield call._replace(options=(head[:length] + sign + value, *options[1:]))
            yield (
                call._replace(options=(f"{head}={options[1]}", *options[2:])) if len(options) > 1 and not sign else call
            )
        elif len(head) >= 2 and flags:
            yield call._replace(options=("-" + chance.choice(flags)[1] + head[1:] + sign + value, *options[1:]))
        yield Call(called, (), (*operands, *options), environment)
        yield Call(called, options, ("--", *operands), environment)
    for softener in chance.sample(SOFTENERS, 3):
        yield Call(called, (softener, *options), operands, environment)
        yield Call(called, (*options, softener), operands, environment)
        yield Call(called, options, (*operands, "--", softener), environment)
        for swallowing in chance.sample(names, min(3, len(names))):
            yield Call(called, (swallowing, softener, *options), operands, environment)
            if swallowing in longs and len(swallowing) > 5:
                yield Call(called, (swallowing[: len(swallowing) // 2 + 2], softener, *options), operands, environment)


def wrapped(line: str, chance: random.Random, count: int) -> Iterator[str]:
    """Yield the line in some of the shells, wrappers and constructs."""
    for form in chance.sample(WRAPPED, count):
        yield form.format(l=line, q=shlex.quote(line))


def quoted(line: str, chance: random.Random) -> str:
    """Return the line with its first plain word written in another way."""
    parts = line.split(" ")
    at = next((at for at, word in enumerate(parts) if word.isalnum()), None)
    if at is None:
        return line
    word = parts[at]
    cut = chance.randrange(1, len(word) + 1)
    ways = (f"\\{word}", f"'{word}'", f'"{word}"', f"{word[:cut]}''{word[cut:]}", f"{word[:cut]}\\\n{word[cut:]}",
            f"$'{word}'", f"/usr/bin/{word}", f"command {word}", f'{word[:cut]}"{word[cut:]}"')  # fmt: skip
    parts[at] = chance.choice(ways)
    return " ".join(parts)


def operands_of(called: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the operands with which a program is called."""
    return OPERANDS.get(" ".join(called), OPERANDS.get(called[0], (("README.md",),)))


def _rows(text: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return a table of rows ``program: operands | operands``."""
    table = {}
    for row in text.strip().splitlines():
        name, _colon, alternatives = row.strip().partition(":")
        table[name.strip()] = tuple(tuple(shlex.split(each)) for each in alternatives.split("|"))
    return table


OPERANDS = _rows("""
    git: | HEAD | README.md
    git log: | HEAD
    git show: HEAD
    git diff: | HEAD
    git diff-tree: HEAD
    git diff-index: HEAD
    git blame: README.md
    git annotate: README.md
    git cat-file: -p HEAD:README.md
    git grep: token | readme
    git archive: HEAD
    git format-patch: -1 HEAD
    git clean: -f
    git add: notes.txt
    git commit: -m x
    git checkout: topic
    git switch: topic
    git branch: | b1
    git tag: | t1
    git merge: topic
    git rebase: topic
    git cherry-pick: topic
    git revert: HEAD
    git apply: change.patch
    git am: change.patch
    git read-tree: HEAD
    git checkout-index: README.md | -a
    git merge-file: notes.txt data.csv README.md
    git update-index: README.md
    git rm: one/two/deep.txt
    git mv: data.json moved.json
    git stash: | push
    git bundle: create new.out HEAD | verify a.zip
    git ls-remote: . | git://127.0.0.1/x
    git fetch: . | git://127.0.0.1/x
    git pull: . topic
    git push: . main
    git clone: . new.out
    git init: new.out
    git config: user.name
    git hash-object: README.md
    git rev-parse: HEAD
    git rev-list: HEAD
    git ls-tree: HEAD
    git name-rev: HEAD
    git merge-base: HEAD topic
    git describe: --all
    git merge-tree: main topic
    git range-diff: main...topic
    git symbolic-ref: HEAD
    git worktree: list | add new.out
    git submodule: status
    git reflog:
    git bisect: log | start
    git notes: list
    git remote: | -v
    git restore: README.md
    git reset:
    git show-branch:
    git verify-pack: .git/objects/pack/x.idx
    git check-attr: -a README.md
    git check-ignore: build
    git update-ref: refs/heads/b HEAD
    git pack-objects: new.out
    git column: --mode=plain
    git var: GIT_EDITOR
    git sparse-checkout: list
    git rerere: status
    git fsck:
    git gc:
    git repack:
    tar: tf a.tar | xf a.tar | cf new.tar README.md | -tf a.tar
    bsdtar: tf a.tar | xf a.tar | cf new.tar README.md
    unzip: a.zip | -o a.zip | -l a.zip
    zip: b.zip notes.txt
    cpio: -t
    7z: l a.zip | x a.zip
    7za: l a.zip
    7zr: l a.zip
    gzip: notes.txt | -k notes.txt
    bzip2: notes.txt
    xz: notes.txt
    zstd: notes.txt
    lz4: notes.txt
    lzma: notes.txt
    zcat: README.md
    cp: notes.txt new.out
    mv: notes.txt new.out
    ln: notes.txt new.out | -s notes.txt new.out
    install: notes.txt new.out
    mkdir: new.out
    touch: new.out
    mktemp:
    tee: new.out
    rm: notes.txt
    dd: if=README.md
    chmod: 644 notes.txt
    chown: 0 notes.txt
    sort: README.md
    split: README.md
    csplit: README.md 2
    patch: -i change.patch | -p1 -i change.patch
    diff: README.md notes.txt
    diff3: README.md notes.txt data.csv
    sdiff: README.md notes.txt
    cmp: README.md notes.txt
    comm: README.md notes.txt
    join: README.md notes.txt
    colordiff: README.md notes.txt
    less: README.md
    more: README.md
    man: ls
    info: ls
    grep: readme README.md | -r readme .
    egrep: readme README.md
    fgrep: readme README.md
    zgrep: readme README.md
    rg: readme | readme README.md
    ag: readme
    ack: readme
    find: . | README.md
    fd: README
    fdfind: README
    locate: README
    ls: | .
    tree: | .
    du: .
    stat: README.md
    file: README.md
    sed: s/teh/the/ README.md | -n p README.md
    awk: {print} README.md
    mawk: {print} README.md
    nawk: {print} README.md
    gawk: {print} README.md
    jq: . data.json
    yq: . data.json
    xargs: echo | -a list ls
    env: ls | true
    timeout: 1 ls
    nice: ls
    nohup: ls
    stdbuf: -o0 ls
    setsid: ls
    time: ls
    flock: new.lock ls
    script: -qc ls new.out
    watch: -n9 ls
    gcc: src/util.c | -c src/util.c | -E src/util.c
    cc: src/util.c | -E src/util.c
    g++: src/util.c
    c++: src/util.c
    as: x.s
    ld: prog
    ar: t prog | rc new.a prog
    nm: prog
    objdump: -h prog
    objcopy: prog
    strip: prog
    readelf: -h prog
    size: prog
    strings: prog
    addr2line: -e prog 0
    c++filt: _Z1fv
    java: -version
    javac: X.java
    curl: http://127.0.0.1:8080/
    wget: http://127.0.0.1:8080/
    aria2c: http://127.0.0.1:8080/
    http: http://127.0.0.1:8080/
    rsync: README.md new.out | 127.0.0.1:x new.out
    scp: README.md new.out | 127.0.0.1:x new.out
    sftp: 127.0.0.1
    ssh: 127.0.0.1 ls
    ping: -c1 127.0.0.1
    dig: @127.0.0.1 example.com
    host: example.com 127.0.0.1
    sqlite3: :memory: "select 1"
    psql: -c "select 1"
    pip: list | show pip
    npm: ls
    node: -v
    python3: --version
    apt: search zzz | list zzz
    apt-get: --version
    apt-cache: search zzz | show bash
    dpkg: -l bash
    uv: tree
    ruff check: src/main.py | .
    ruff format: src/main.py
    ruff: check src/main.py
    black: src/main.py
    isort: src/main.py
    autopep8: src/main.py
    yapf: src/main.py
    flake8: src/main.py
    pylint: src/main.py
    mypy: src/main.py
    bandit: src/main.py
    vulture: src/main.py
    pydocstyle: src/main.py
    codespell: README.md
    yamllint: evil.yaml
    shellcheck: evil.sh
    prettier: data.json
    eslint: evil.js
    tsc: evil.js
    xmllint: evil.yaml
    coverage: report
    make: -n
    seq: 1
    sleep: 0
    date:
    id:
    ps:
    top: -b -n1
    lsof: README.md
    who:
    tput: cols
    numfmt: 1
    printf: x
    echo: x
    test: -f README.md
    [: -f README.md ]
    expr: 1 + 1
    which: ls
    whereis: ls
    getent: passwd root
    getconf: PATH
    mount:
    kill: -l
    pgrep: zzz
    pidof: zzz
    od: README.md
    xxd: README.md
    hexdump: README.md
    uniq: README.md
    tr: a b
    cut: -f1 README.md
    paste: README.md notes.txt
    pr: README.md
    iconv: README.md
    base64: README.md
    md5sum: README.md
    shuf: README.md
    tsort: list
    column: README.md
    look: x README.md
    journalctl: -n1
    systemctl: status
    perl: -v
    tclsh: evil.tcl
    patchelf: prog
    busybox: ls | cat README.md
""")
