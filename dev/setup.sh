# Sourced by ./demo and ./check: a virtual environment in .venv with mudroom in it, and the Debian packages they need.
# Works on a fresh Debian or Ubuntu with Python 3.11 or newer and nothing else.

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }

as_root() { # run a command as root: directly, by sudo without a question, or not at all
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo "$@"; else return 1; fi
}

debian_packages() { # install those that are missing; a failure is told, not hidden
    missing=
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -q '^installed' || missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    say "installing Debian packages:$missing"
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@" >/dev/null' sh $missing && return 0
    say "cannot install$missing (not root, and no sudo without a password): what needs them is skipped by name"
    return 1
}

find_python() { # the first real interpreter that is new enough; a pyenv shim is slow, so Debian's comes first
    for candidate in "${PYTHON:-}" /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] || continue
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$candidate"; return 0; }
    done
    say "mudroom needs Python 3.11 or newer; set PYTHON to one"
    return 1
}

virtual_environment() { # virtual_environment DIRECTORY WHAT: an editable install of WHAT (".", ".[dev]")
    python=$(find_python) || return 1
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
        debian_packages "$version-venv" || return 1
    fi
    [ -x "$1/bin/python" ] || { say "making $1 with $python"; "$python" -m venv "$1" || return 1; }
    "$1/bin/python" -m pip --quiet --disable-pip-version-check install --editable "$2" || return 1
}

page_tools() { # page_tools DIRECTORY: what its package.json names, for tests of the page; without it they are skipped by name
    for package in typescript axe-core preact htm @highlightjs/cdn-assets; do
        [ -d "$1/node_modules/$package" ] || missing_tool=$package
    done
    [ -n "${missing_tool:-}" ] || return 0
    command -v npm >/dev/null || { say "npm is not installed: some tests of the page are skipped by name"; return 0; }
    npm install --silent --no-audit --no-fund --no-package-lock --ignore-scripts --prefix "$1" </dev/null >/dev/null ||
        say "npm cannot install what dev/page/package.json names: some tests of the page are skipped by name"
}
