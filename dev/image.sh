# Sourced by dev/vm and dev/docker: a Debian with what the tests need, but for mudroom itself. `cache` is set: the
# directory where what is made is kept, outside of the tree.

find_image() { # find_image FORMAT FILE: whether it has been made, and like this; else it must be root who goes on
    [ "$(cat "$cache/format" 2>/dev/null)" = "$1" ] && [ -e "$cache/$2" ] && return 0
    [ "$(id -u)" = 0 ] || { say "making the image needs root: do it as root, then copy it to $cache"; exit 1; }
    say "making $cache/$2 (once; a few minutes)"
    mkdir -p "$cache"
    return 1
}

debian() { # debian DIRECTORY PACKAGES [SUITE PYTHON]: a root with these packages, Python's in /opt/venv, and the user dev
    debootstrap --variant=minbase --include="$2" "${3:-bookworm}" "$1" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$cache/build.log" 2>&1
    chroot "$1" python3 -m venv /opt/venv
    wheels "$1/opt/wheels" "${4:-3.11}" >>"$cache/build.log" 2>&1 # fetched outside: pip's settings and certificates are the host's
    chroot "$1" sh -c '/opt/venv/bin/pip --isolated --quiet install --no-index /opt/wheels/*.whl' >>"$cache/build.log" 2>&1
    chroot "$1" useradd --create-home --shell /bin/bash dev
    rm -rf "$1"/var/cache/apt/archives/*.deb "$1/opt/wheels"
}

wheels() { # wheels DIRECTORY PYTHON
    "$(find_python)" -m venv "$cache/venv"
    requirements >"$cache/requirements"
    "$cache/venv/bin/pip" --quiet download --dest "$1" --only-binary :all: --python-version "$2" --implementation cp \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 \
        --platform manylinux_2_5_x86_64 -r "$cache/requirements"
}

requirements() { # what pyproject.toml asks for, with the extra "dev", but for linters, documents, and what has no wheel
    "$(find_python)" - "$here/pyproject.toml" <<'PYTHON'
import re, sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
apart = {"furo", "http-ece", "mypy", "myst-parser", "playwright", "ruff", "sphinx", "types-PyYAML", "zizmor"}
asked = project["dependencies"] + project["optional-dependencies"]["dev"]
print("\n".join(one for one in asked if re.split("[><=; ]", one)[0] not in apart))
PYTHON
}
