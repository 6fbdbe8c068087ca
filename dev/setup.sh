# Sourced by ./demo, ./check and scripts in dev/: a virtual environment in .venv with mudroom in it, the Debian packages
# they need, and the duration of each part of a run.
# Works on a fresh Debian or Ubuntu with Python 3.11 or newer and nothing else.

# Images of containers set it. The tests start mudroom a thousand times, which would compile it each time.
unset PYTHONDONTWRITEBYTECODE

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }

as_root() { # run a command as root: directly, by sudo without a question, or not at all
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo "$@"; else return 1; fi
}

compile_ahead() { # compile_ahead PYTHON DIRECTORY: once, instead of by the first command of many tests
    # In processes of their own: "compileall -j" forks beside its threads, and was seen to wait for ever.
    find "$2" -name '*.py' -print0 | xargs -0 -P "$(nproc)" -n 250 "$1" -m compileall -q || say "not compiled ahead: $2"
}

debian_packages() { # install missing packages: all at once, or else singly; print those that cannot be installed
    local package missing= lacking= # the caller has variables of these names
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -q '^installed' || missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    say "installing Debian packages:$missing"
    if ! command -v apt-get >/dev/null || ! as_root true; then
        say "cannot install$missing (not root, and no sudo without a password; or no apt-get): what needs them is skipped"
        return 1
    fi
    as_root apt-get -qq update || say "apt-get update failed: the lists of packages may be old"
    # shellcheck disable=SC2086
    apt_install $missing 2>/dev/null && return 0
    for package in $missing; do
        apt_install "$package" || lacking="$lacking $package"
    done
    [ -z "$lacking" ] && return 0
    say "cannot install$lacking: what needs them is skipped"
    return 1
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}

begin_figures() { # make the file of durations, printed at the end by the script that made it; any user may write to it
    [ -n "${MUDROOM_FIGURES:-}" ] && { figures_are_ours=; return; }
    figures_are_ours=$(mktemp -d)
    chmod 0755 "$figures_are_ours"
    export MUDROOM_FIGURES=$figures_are_ours/figures
    : >"$MUDROOM_FIGURES"
    chmod 0666 "$MUDROOM_FIGURES"
    SECONDS=0
}

part() { # part NAME COMMAND…: run it, and record the seconds; return its exit status
    part_name=$1 part_began=$SECONDS part_status=0
    shift
    "$@" || part_status=$?
    part_result=ok
    [ "$part_status" = 0 ] || part_result="exit status $part_status"
    [ -z "${MUDROOM_FIGURES:-}" ] || printf 'part\t%s\t%s\t%s\n' "$part_name" $((SECONDS - part_began)) "$part_result" >>"$MUDROOM_FIGURES"
    return "$part_status"
}

tell_figures() { # print the seconds per part, and skipped tests by reason
    [ -n "${figures_are_ours:-}" ] || return 0
    awk -F '\t' -v total="$SECONDS" '
        $1 == "part" { parts = parts sprintf("%6d s  %s%s\n", $3, $2, $4 == "ok" ? "" : ": " $4) }
        $1 == "skip" { skips = skips sprintf("%6d of %-4s %-11s %s\n", $3, $4, $2, $5) }
        END { printf "\n%s%6d s  in all\n\nskipped, of how many may be, by pass and reason:\n%s\n", parts, total, skips }
    ' "$MUDROOM_FIGURES" >&2
    rm -rf "$figures_are_ours"
    figures_are_ours=
}

once_more() { # once_more FILE COMMAND…: run the tests that FILE names again, three times by COMMAND; list them if they pass
    mapfile -t failed_tests <"$1"
    for _time in 1 2 3; do "${@:2}" "${failed_tests[@]}" || { say "failed again; see above"; return 1; }; done
    listed=0
    for failed_test in "${failed_tests[@]}"; do
        say "unsteady: $failed_test"
        ! grep -qxF -e "$failed_test" tests/unsteady.txt || { say "it was in tests/unsteady.txt already"; listed=1; }
        printf '%s\n' "$failed_test" >>tests/unsteady.txt
    done
    return "$listed"
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
    local python version
    python=$(find_python) || return 1
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
        debian_packages "$version-venv" || return 1
    fi
    [ -x "$1/bin/python" ] || { say "making $1 with $python"; "$python" -m venv "$1" || return 1; }
    "$1/bin/python" -m pip --quiet --disable-pip-version-check install --editable "$2" || return 1
}

page_tools() { # page_tools DIRECTORY: install the packages of its package.json, for tests of the page, which are skipped without them
    local package missing_tool=
    for package in typescript axe-core preact htm @highlightjs/cdn-assets; do
        [ -d "$1/node_modules/$package" ] || missing_tool=$package
    done
    [ -n "$missing_tool" ] || return 0
    command -v npm >/dev/null || { say "npm is not installed: some tests of the page are skipped by name"; return 0; }
    npm install --silent --no-audit --no-fund --no-package-lock --ignore-scripts --prefix "$1" </dev/null >/dev/null ||
        say "npm cannot install what dev/page/package.json names: some tests of the page are skipped by name"
}

copy_tree() { # copy_tree TREE DIRECTORY: its files, and the launcher that was built into it
    (cd "$1" && { git ls-files -z --cached --others --exclude-standard
        find src/mudroom/sandbox/client -name 'mudroom-launcher-*' -print0; } | xargs -0 cp --parents -t "$2")
}
