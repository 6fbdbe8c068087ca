"""Package managers, build tools, test runners, formatters.

A command that runs the project's code (package.json scripts, targets, tests, build scripts) is unknown: its words do
not say what the code does. Installing is ``mutating`` and ``networked``, although packages may run code.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding
from mudroom.core.command.table_rule import (  # fmt: skip
    CHANGE,
    ESCAPE,
    FETCH,
    INFORMS,
    LOSE,
    REACH,
    READ,
    UNSURE,
    Classes,
    ProgramRule,
    entries,
    names,
    option,
)
from mudroom.core.command.word import Word

_READS = ProgramRule(READ, "only reads")
_ASKS = ProgramRule(REACH, "asks the registry")
_ASKS_HOST = ProgramRule(REACH, "asks the code host")
_CODE = ProgramRule(UNSURE, "runs code of the project")
_LOADS = ProgramRule(UNSURE, "loads files of the project before it answers", evaluates=True)
_FETCHED_CODE = ProgramRule(("networked", "unknown"), "runs code that it fetches")
_WRITES = ProgramRule(CHANGE, "changes files of the project")
_MAKES = ProgramRule(CHANGE, "makes a directory with files", targets="all")
_PUBLISHES = ProgramRule(("networked", "host_escape_risk"), "publishes, or acts with an account")
_MACHINE = ProgramRule(ESCAPE, "changes the machine")
_PRINTS = ProgramRule(READ, "prints its configuration", safe=names("--user"))
_SETS = ProgramRule(UNSURE, "changes its configuration")
_CLEANS = ProgramRule(LOSE, "removes build outputs")
_VERSION = ProgramRule(READ, "prints a version", operand=CHANGE)
_WIDE = option("-g --global", ESCAPE, "for the whole machine")
_PLACED = option("--location", ESCAPE, "for the whole machine", when="global")
_ADDS = ProgramRule(
    FETCH, "installs packages", (_WIDE, _PLACED, option("--prefix", CHANGE, "installs packages in a directory"))
)
_REMOVES = ProgramRule(CHANGE, "removes packages", (_WIDE, _PLACED))
_PIPS = ProgramRule(
    FETCH,
    "installs packages",
    (option("-t --target --prefix --root --src -d --dest -w --wheel-dir --report", CHANGE, "installs packages"),),
    safe=names(
        """-r --requirement -c --constraint -e --editable -i --index-url --extra-index-url -f --find-links --user
        --upgrade --trusted-host --break-system-packages --group"""
    ),
)
_INSTALLS = ProgramRule(FETCH, "installs packages")
_FETCHES = ProgramRule(
    FETCH, "fetches files from the code host", (option("-D --dir -O --output", CHANGE, "writes a file"),), targets="all"
)
_CHECKED = ProgramRule(CHANGE, "checks files, and may write a cache")
_PLUGINS = ProgramRule(("mutating", "unknown"), "checks files with plugins that the project names")


# --- calls to a code host's API with the user's account: ``gh api``, ``glab api``, ``hub api`` ---
# A call without fields is a GET and a call with fields is a POST, unless an option names the method (gh-api(1)). Only
# GET and HEAD read; any other method acts with the account.

_ACTS: Classes = ("networked", "host_escape_risk")
_ACTING = "changes a code host with an account"
_METHODS = names("-X --method")
_FIELDS = names("-f --raw-field -F --field --input")
_TAKING = _METHODS | _FIELDS | names("-H --header -q --jq -t --template -p --preview --cache --hostname --output")
_FLAGS = names("-i --include --paginate --silent --slurp --verbose --help")
_ACTING_VERBS = names(
    """create update edit close reopen merge delete remove rm archive transfer fork upload run retry cancel trigger
    approve revoke note comment set add login rebase publish push pull-request sync rename subscribe"""
)


def _of_api(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    """Judge ``api ENDPOINT …``; the first word is ``api``."""
    methods, has_fields, is_known = list[Word](), False, True
    at = 1
    while at < len(words):
        word, at = words[at], at + 1
        if not word.may_be_option or (word.literal and word.text == b"-"):
            continue
        if word.literal and word.text == b"--":
            break
        name, value = _option(word) if word.literal else (b"", b"")
        is_known = is_known and bool(name)
        given = Word(value)
        if name in _TAKING and not value:
            given, at = words[at] if at < len(words) else given, at + 1
        methods += [given] if name in _METHODS else []
        has_fields = has_fields or name in _FIELDS
    reads = all(word.literal and word.text.upper() in (b"GET", b"HEAD") for word in methods)
    if not reads or (has_fields and not methods):
        return CommandFinding(_ACTS, _ACTING)
    if not is_known:
        return CommandFinding(("networked", "unknown"), "an option that is not known, or not before it runs")
    return CommandFinding(REACH, "asks the code host")


def _option(word: Word) -> tuple[bytes, bytes]:
    """Return the option that takes a value, or else the last one, and its attached value. Both are empty if any option
    is unknown."""
    text = word.text
    if text.startswith(b"--"):
        name, _sign, value = text.partition(b"=")
        return (name, value) if name in _TAKING or name in _FLAGS else (b"", b"")
    name = b""
    for at in range(1, len(text)):
        name = b"-" + text[at : at + 1]
        if name in _TAKING:
            return name, text[at + 1 :].removeprefix(b"=")
        if name not in _FLAGS:
            return b"", b""
    return name, b""


def _of_code_host(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``glab`` and ``hub``, whose other subcommands are in no table."""
    if len(words) > 1 and all(word.literal and word.text in INFORMS for word in words[1:]):
        return CommandFinding(READ, "prints its version or help")
    texts = [word.text if word.literal else b"" for word in words]
    if b"api" in texts[1:]:
        return _of_api(words[texts.index(b"api", 1) :], context)
    if not _ACTING_VERBS.isdisjoint(texts[1:4]):
        return CommandFinding(_ACTS, _ACTING)
    return CommandFinding(("networked", "unknown"), "acts with an account")


def _verbs(adding: ProgramRule, **groups: str) -> dict[bytes, ProgramRule]:
    """Return a table of subcommands grouped by effect: ``reads="list info"``."""
    kinds = {
        "reads": _READS, "asks": _ASKS, "code": _CODE, "fetched": _FETCHED_CODE, "writes": _WRITES, "adds": adding,
        "removes": _REMOVES, "publishes": _PUBLISHES, "machine": _MACHINE, "cleans": _CLEANS,
    }  # fmt: skip
    table: dict[bytes, ProgramRule] = {}
    for kind, verbs in groups.items():
        table |= entries(verbs, kinds[kind])
    return table


def _manager(
    alone: ProgramRule, subcommands: dict[bytes, ProgramRule], takes: str = "", flags: str = ""
) -> ProgramRule:
    return alone._replace(subcommands=subcommands, takes=names(takes), flags=names(flags))


_NPM = _verbs(
    _ADDS,
    reads="list ls ll la root prefix bin get explain why help-search completion query",
    asks="view info show v search s find outdated ping doctor whoami",
    adds="install i in ins add ci clean-install install-test it update up upgrade dedupe ddp link ln rebuild",
    removes="uninstall un remove rm r prune",
    code="run run-script test t tst start stop restart pack version rum urn edit explore build dev",
    fetched="exec x create init dlx",
    publishes="publish unpublish deprecate owner access token login adduser logout team org profile dist-tag hook star",
) | {
    b"cache": _manager(
        _READS, {**entries("ls", _READS), b"verify": _WRITES, b"add": _INSTALLS, **entries("clean rm", _CLEANS)}
    ),
    **entries(
        "config c", _manager(_SETS, {**entries("get list ls", _PRINTS), **entries("set delete edit fix", _SETS)})
    ),
    **entries("help fund", ProgramRule(READ, "only prints", operand=UNSURE)),  # may open the browser of .npmrc
    b"audit": ProgramRule(REACH, "asks the registry", operand=CHANGE),  # fix
    b"pkg": _manager(_READS, {b"get": _READS, **entries("set delete fix", _WRITES)}),
}
_PNPM = _verbs(
    _ADDS,
    reads="list ls ll la root prefix bin get explain why help licenses",
    asks="view info show search outdated audit",
    adds="install i add ci update up upgrade dedupe link ln rebuild rb import fetch",
    removes="uninstall un remove rm prune unlink",
    code="run run-script test t start stop restart pack exec recursive m dev build lint",
    fetched="dlx create init",
    publishes="publish login logout",
    cleans="store",
)
_BUN = {
    **_verbs(
        _ADDS,
        asks="info outdated audit",
        adds="install i add a update link",
        removes="remove rm unlink",
        code="run test start build exec",
        fetched="x create init c",
        publishes="publish",
        machine="upgrade",
    ),
    b"pm": _manager(
        _READS,
        {
            **_verbs(
                _INSTALLS,
                reads="ls list bin hash hash-string hash-print untrusted default-trusted",
                asks="view whoami",
                code="trust pack version",
                writes="migrate",
            ),
            b"cache": _manager(_READS, {b"rm": _CLEANS}),
            b"pkg": _manager(_READS, {b"get": _READS, **entries("set delete fix", _WRITES)}),
        },
    ),
}
"""Another word is a script of the project's, such as bun list before 1.3."""
_YARN = _verbs(
    _ADDS,
    reads="list why help versions bin licenses",
    asks="info outdated audit",
    adds="install add upgrade up import dedupe link autoclean set",
    removes="remove unlink",
    code="run test start pack exec workspaces workspace node rebuild build dev lint version",
    fetched="dlx create init global",
    publishes="publish login logout owner tag team",
) | {b"npm": _manager(_READS, _verbs(_ADDS, asks="info audit whoami", publishes="publish login logout tag"))}
_PIP_PLACES = names("--user -e --editable -f --files -r --requirement -i --index-url --extra-index-url")
_PIP = _verbs(
    _PIPS,
    reads="list show freeze check inspect debug help completion hash",
    asks="index search",
    adds="install download wheel lock",
    removes="uninstall",
) | {
    b"cache": _manager(_READS, _verbs(_INSTALLS, reads="dir info list", cleans="remove purge")),
    b"config": _manager(_SETS, {**entries("list get debug", _PRINTS), **entries("set unset edit", _SETS)}),
    b"list": ProgramRule(
        READ, "only reads", (option("-o --outdated -u --uptodate", REACH, "asks the registry"),), safe=_PIP_PLACES
    ),
    **entries("show freeze", ProgramRule(READ, "only reads", safe=_PIP_PLACES)),
}
_LOCKED = ProgramRule(
    ("mutating", "networked", "unknown"), "may build the project to lock it", softened=names("--frozen"),
    options=(option("-o --output-file", CHANGE, "writes a file"),), safe=names("--directory --project"),
)  # fmt: skip
_UV_ADDS = ProgramRule(
    FETCH,
    "installs packages",
    safe=names(
        """--directory --project -i --index-url --extra-index-url --index --default-index -U --upgrade --group -e
        --editable -r --requirements -c --constraints --link-mode --system --seed"""
    ),
)
_UV = {
    **_verbs(
        _UV_ADDS,
        reads="help",
        adds="add sync lock update self",
        removes="remove",
        code="run build",
        publishes="publish auth",
    ),
    b"init": _MAKES,
    b"venv": _MAKES._replace(evaluates=True),
    b"tree": _LOCKED,
    b"export": _LOCKED,
    b"version": ProgramRule(CHANGE, "prints or changes the version of the project"),
    b"cache": _manager(_READS, _verbs(_INSTALLS, reads="dir", cleans="clean prune")),
    b"pip": _manager(
        _READS,
        {**entries("install sync compile uninstall", _UV_ADDS), **entries("list show freeze check tree", _READS)},
    )._replace(evaluates=True),  # runs .venv/bin/python
    b"tool": _manager(
        _READS, _verbs(_INSTALLS, reads="list dir", fetched="run", machine="install upgrade uninstall update-shell")
    ),
    b"python": _manager(
        _READS,
        {
            **_verbs(_INSTALLS, reads="dir", adds="install", code="pin", machine="uninstall"),
            b"list": ProgramRule(READ, "lists interpreters", (option("*", UNSURE, "runs a program"),)),
        },
    ),
}
_SHOWS_LATEST = ProgramRule(
    READ,
    "only reads",
    (option("-l --latest -o --outdated -r --remote -b --both -A --available", REACH, "asks the registry"),),
)
_POETRY = {
    **_verbs(
        _INSTALLS,
        reads="check about help list search",
        adds="install add update lock sync self",
        removes="remove",
        writes="init new export",
        code="run build shell",
        publishes="publish",
    ),
    b"show": _SHOWS_LATEST,
    b"version": _VERSION,
    b"env": _manager(
        _READS,
        _verbs(_INSTALLS, reads="list info show find activate", adds="use create", cleans="remove prune", code="run"),
    ),
    b"cache": _manager(_READS, _verbs(_INSTALLS, reads="list info", cleans="clear remove")),
}
_CONDA_ENV = {
    **_verbs(_INSTALLS, reads="list", adds="create update", cleans="remove", code="config"),
    b"export": ProgramRule(
        READ, "only prints", (option("-f --file", CHANGE, "writes a file"),), takes=names("-n --name -p --prefix")
    ),
}
_CARGO = _verbs(
    _INSTALLS,
    reads="tree metadata version locate-project pkgid read-manifest verify-project help config",
    asks="search info",
    adds="add remove rm update fetch vendor generate-lockfile",
    writes="new init fmt",
    code="build b check c test t run r bench doc d clippy rustc rustdoc fix nextest miri watch expand package",
    fetched="install",
    machine="uninstall",
    publishes="publish yank login logout owner",
    cleans="clean",
) | {
    **entries("new init", _MAKES),
    b"vendor": ProgramRule(FETCH, "installs packages", targets="all"),
}
_GO = _verbs(
    ProgramRule(FETCH, "installs packages", (option("-o", CHANGE, "writes a file"),)),
    reads="version help doc",
    adds="get build install list vet",
    writes="fmt fix",
    code="test run generate tool",
    cleans="clean",
) | {
    b"mod": _manager(_READS, _verbs(_INSTALLS, adds="graph verify why tidy download vendor", writes="init edit")),
    b"work": _manager(_READS, _verbs(_INSTALLS, writes="init use edit sync vendor")),
    b"env": ProgramRule(READ, "only reads", (option("-w -u", ESCAPE, "changes the configuration of the user"),)),
}
_GEM = _verbs(
    _INSTALLS,
    reads="contents environment help which",
    asks="search outdated info",
    adds="install update fetch",
    removes="uninstall cleanup",
    code="build exec",
    publishes="push yank owner signin signout",
)
_BUNDLE = _verbs(
    _INSTALLS,
    reads="list show info check platform help doctor env licenses",
    asks="outdated",
    adds="install update add lock cache package",
    removes="remove clean",
    writes="init config binstubs",
    code="exec console gem open",
)
_COMPOSER = _verbs(
    _INSTALLS,
    reads="licenses validate status depends why check-platform-reqs help",
    asks="search outdated audit diagnose",
    adds="install update require create-project dump-autoload",
    removes="remove",
    writes="init bump",
    code="run-script exec run test",
    machine="global self-update",
)
_SYSTEM_ASKS = "search show list info policy depends rdepends provides files repolist query"
_SYSTEM = {
    **entries(_SYSTEM_ASKS, ProgramRule(READ, "asks the system's packages")),
    **entries(
        """install remove purge update upgrade full-upgrade dist-upgrade autoremove autoclean clean source build-dep
        reinstall add del downgrade erase tap untap cleanup link unlink services pin edit-sources download""",
        ProgramRule(("networked", "host_escape_risk"), "changes the packages of the machine"),
    ),
}
_GH = {
    **entries("search status", _ASKS_HOST),
    **entries("help version completion", _READS),
    b"api": ProgramRule(REACH, "", judge=_of_api),
    **entries("auth secret ssh-key gpg-key variable codespace ruleset", _PUBLISHES),
    **{
        name: _manager(
            _ASKS_HOST,
            _verbs(
                _ADDS,
                publishes="create edit close reopen merge comment delete review ready lock unlock pin transfer fork"
                " rename archive upload run rerun cancel sync develop enable disable set",
            )
            | entries("list view status diff checks watch", _ASKS_HOST)
            | entries("clone checkout download", _FETCHES)
            | (entries("clone", _PUBLISHES) if name == b"label" else {}),
        )
        for name in names("pr issue repo run release workflow gist label project cache org")
    },
}

TOOLS: dict[bytes, ProgramRule] = {
    b"npm": _manager(
        _READS._replace(options=(_WIDE, _PLACED)),
        _NPM,
        "--prefix -C --workspace -w --loglevel",
        "--silent -s --quiet -q --no-fund --no-audit",
    ),
    b"pnpm": _manager(_READS, _PNPM, "-C --dir --filter -F", "--silent -s -r --recursive -w --workspace-root")._replace(
        evaluates=True
    ),
    **entries(
        "yarn yarnpkg",
        _manager(_ADDS, _YARN, "--cwd", "--silent -s --offline --frozen-lockfile --immutable")._replace(evaluates=True),
    ),
    b"bun": _manager(_READS, _BUN),
    **entries("npx pnpx bunx uvx pipx corepack", _FETCHED_CODE),
    **entries("pip pip3 pip3.11 pip3.12", _manager(_READS, _PIP, "--proxy --cache-dir", "-q --quiet -v --no-input")),
    b"uv": _manager(_READS, _UV, "--directory --project", "-q --quiet -v --verbose --offline"),
    **entries(
        "poetry pdm rye hatch",
        _manager(_READS, _POETRY, "-C --directory -P --project", "-q -n -v")._replace(evaluates=True),
    ),
    b"pipenv": _manager(_READS, {**_POETRY, **entries("check scan", _ASKS), b"graph": _READS})._replace(evaluates=True),
    **entries(
        "conda mamba micromamba",
        _manager(
            _READS,
            _verbs(
                _INSTALLS,
                reads="list info help compare",
                asks="search",
                adds="install create update upgrade",
                removes="remove",
                code="run activate init",
                cleans="clean",
            )
            | {b"env": _manager(_READS, _CONDA_ENV)},
        ),
    ),
    b"cargo": _manager(
        _READS, _CARGO, "--color -C", "-q --quiet -v --verbose --locked --offline --frozen --list"
    )._replace(evaluates=True),
    b"go": _manager(_READS, _GO, "-C"),
    b"gem": _manager(_READS, {**_GEM, **entries("list specification dependency", _SHOWS_LATEST)}),
    **entries("bundle bundler", _manager(_INSTALLS, _BUNDLE)._replace(evaluates=True)),
    b"composer": _manager(
        _READS, {**_COMPOSER, b"show": _SHOWS_LATEST}, "-d --working-dir", "-n -q --no-interaction --quiet --ansi"
    )._replace(evaluates=True),
    **entries(
        "./mvnw ./gradlew ./configure mvn mvnw gradle gradlew sbt lein mill bazel buck rake tox nox invoke scons pytest"
        " py.test mocha ava karma gulp grunt nx rails mix jest webpack lerna turbo next nuxt astro svelte-kit parcel"
        " vitest cypress playwright dotnet swift dart flutter cabal stack nix pod husky lint-staged",
        _LOADS,
    ),
    **entries("make gmake cmake ninja meson just task autoreconf ant pre-commit", _CODE),
    **entries("unittest phpunit rspec cucumber ctest eslint vite rollup esbuild", _CODE),
    **entries(
        "black isort autopep8 yapf stylua",
        ProgramRule(
            CHANGE,
            "rewrites files",
            softened=names("--check --check-only --diff -d"),
            targets="all",
            safe=names("-i --in-place --style"),
        ),
    ),
    **entries("gofmt goimports shfmt", ProgramRule(READ, "only prints", (option("-w", CHANGE, "rewrites files"),))),
    b"clang-format": ProgramRule(READ, "only prints", (option("-i", CHANGE, "rewrites files"),), safe=names("--style")),
    **entries("pyright tsc bandit golint staticcheck vulture pydocstyle", _CHECKED),
    **entries("mypy prettier stylelint", _PLUGINS),
    **entries("flake8 pylint", _PLUGINS._replace(evaluates=True)),
    **entries("rustc rustfmt", _LOADS),  # a toolchain that rust-toolchain.toml names
    **entries("shellcheck hadolint yamllint actionlint", _READS),
    b"xmllint": ProgramRule(
        READ,
        "only prints",
        (
            option("-o --output", CHANGE, "writes a file"),
            option("http://* https://* ftp://*", REACH, "reads over the network"),
            option(
                "--schema --relaxng --schematron --dtdvalid --path --load-trace",
                REACH,
                "reads over the network",
                when="://",
            ),
        ),
    ),
    **entries(
        "markdownlint jsonlint tidy",
        ProgramRule(
            READ,
            "only reads",
            (option("-i -m -o --fix --output --in-place --write-back", CHANGE, "rewrites files"),),
            takes=names("-c --config"),
            flags=names("-q --quiet -e"),
        ),
    ),
    b"codespell": ProgramRule(
        READ, "only reads", (option("-w --write-changes -i --interactive", CHANGE, "rewrites files"),), safe=names("-x")
    ),
    **entries(
        "gcc g++ cc c++ clang clang++ javac ld as ar strip objcopy nasm kotlinc protoc",
        ProgramRule(
            CHANGE,
            "compiles",
            (
                option("-o -d --python_out --cpp_out --java_out --go_out --descriptor_set_out", CHANGE, "compiles"),
                option("-wrapper -fplugin -Xclang -load -B -specs --plugin -plugin", UNSURE, "loads code"),
                option("-Wl, -Wa, -Wp,", UNSURE, "hands options to another program", when="plugin @ -T --script -B"),
            ),
            style="single",
        ),
    ),
    **entries(
        "apt apt-get apt-cache aptitude yum dnf apk zypper brew snap flatpak port pkg emerge",
        _manager(_READS, _SYSTEM, "-o -t", "-y -q -qq --yes --quiet"),
    ),
    **entries(
        "pacman dpkg rpm nix-env nix-channel update-alternatives",
        ProgramRule(ESCAPE, "changes the packages of the machine"),
    ),
    b"twine": _manager(_READS, {b"check": _READS, b"upload": _PUBLISHES, b"register": _PUBLISHES}),
    b"gh": _manager(_READS, _GH),
    **entries("glab hub", ProgramRule(("networked", "unknown"), "", judge=_of_code_host)),
    b"coverage": _manager(
        _READS, _verbs(_INSTALLS, reads="help", code="run debug report html xml json combine", cleans="erase")
    ),
    b"venv": ProgramRule(CHANGE, "makes an environment", targets="all"),
    b"virtualenv": ProgramRule(CHANGE, "makes an environment", targets="all"),
    **entries("compileall py_compile build", _WRITES),
    b"ruff": ProgramRule(
        READ,
        "",
        subcommands={
            b"check": ProgramRule(
                READ,
                "only reads",
                (
                    option("--fix --fix-only --unsafe-fixes --add-noqa -w --watch", CHANGE, "rewrites files"),
                    option("--output-file -o", CHANGE, "writes a file"),
                ),
            ),
            b"format": ProgramRule(CHANGE, "rewrites files", softened=names("--check --diff"), targets="all"),
            **entries("version help rule linter config", _READS),
            b"clean": _CLEANS,
        },
    ),
}
