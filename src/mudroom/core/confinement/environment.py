"""Selection of a command's environment variables. It is an allowlist: a denylist would leak every variable it misses.

A listed variable is dropped if its value contains a URL with a password; proxy variables with a network are the
exception. CARGO_HOME and GOPATH are not listed: they name caches, and the sandbox has the vault's caches at the default
paths.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from mudroom.core.confinement.credential_file import has_password

CERTIFICATES = b"SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO PIP_CERT".split()
"""Variables that name a file of certificates."""
_NAMES = frozenset({
    *CERTIFICATES,
    b"PATH", b"HOME", b"USER", b"LOGNAME", b"SHELL", b"TERM", b"COLORTERM", b"TERM_PROGRAM", b"LANG", b"LANGUAGE",
    b"TZ", b"COLUMNS", b"LINES", b"NO_COLOR", b"FORCE_COLOR", b"CLICOLOR", b"CLICOLOR_FORCE", b"CI", b"EDITOR",
    b"VISUAL", b"PAGER", b"LESS", b"MANPAGER", b"VIRTUAL_ENV", b"CONDA_PREFIX", b"CONDA_DEFAULT_ENV", b"PYENV_ROOT",
    b"PYENV_VERSION", b"NVM_DIR", b"NVM_BIN", b"VOLTA_HOME", b"RUSTUP_HOME", b"RUSTUP_TOOLCHAIN", b"GOROOT",
    b"GOFLAGS", b"JAVA_HOME", b"GRADLE_HOME", b"MAVEN_HOME", b"SDKMAN_DIR", b"ANDROID_HOME", b"DOTNET_ROOT",
    b"GEM_HOME", b"RBENV_ROOT", b"NODE_ENV", b"NODE_OPTIONS", b"NODE_PATH", b"PYTHONPATH", b"PYTHONUNBUFFERED",
    b"PYTHONDONTWRITEBYTECODE", b"PYTHONWARNINGS", b"CC", b"CXX", b"CFLAGS", b"CXXFLAGS", b"CPPFLAGS", b"LDFLAGS",
    b"MAKEFLAGS", b"PKG_CONFIG_PATH", b"LD_LIBRARY_PATH", b"SOURCE_DATE_EPOCH", b"DEBIAN_FRONTEND", b"SSL_CERT_DIR",
    b"PIP_FIND_LINKS", b"PIP_DEFAULT_TIMEOUT", b"PIP_DISABLE_PIP_VERSION_CHECK", b"PIP_NO_CACHE_DIR",
})  # fmt: skip
_PREFIXES = (b"LC_",)
_USELESS = {
    b"NODE_OPTIONS": (b"--require", b"-r ", b"--import", b"--loader", b"--experimental-loader", b"--inspect"),
    b"MAKEFLAGS": (b"--jobserver",),
}
"""Values for which a variable is dropped: they name files or descriptors that are missing in the sandbox (an editor's
debugger, the parent make), and would make every command fail."""
PROXY_NAMES = frozenset(
    b"http_proxy https_proxy ftp_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY NO_PROXY".split()
)
_PROXIES = b"http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY".split()
"""All get the same ``http://`` URL: for ``socks5h://`` some clients need a library that may be missing, and fail."""
INSIDE = b"http://127.0.0.1:3128"
"""The gate in a network namespace. A test compares the port with ``sandbox/linux/plan.py``."""
_OWN = b"localhost,127.0.0.1,::1"
"""Only local servers inside the sandbox are reached without the gate."""

_SIGNATURES = (b"commit.gpgsign", b"tag.gpgsign", b"push.gpgsign")


def select_variables(
    environ: Mapping[bytes, bytes],
    *,
    home: bytes,
    cwd: bytes,
    network: bool,
    proxy: bytes = b"",
    extra: Collection[bytes] = (),
) -> dict[bytes, bytes]:
    """Return the variables for a command.

    ``extra`` contains NAME (taken over from ``environ``) or NAME=VALUE. The host's proxy variables pass only with
    ``network``, the host's network. ``proxy`` is the gate's URL inside the sandbox.
    """
    chosen = {name: value for name, value in environ.items() if _is_allowed(name, value, network)}
    return completed(chosen, environ, home, cwd, proxy, extra)


def completed(
    chosen: dict[bytes, bytes],
    environ: Mapping[bytes, bytes],
    home: bytes,
    cwd: bytes,
    proxy: bytes,
    extra: Collection[bytes],
) -> dict[bytes, bytes]:
    """Return the chosen variables with those from the gate, the policy and the sandbox. ``chosen`` is changed."""
    if proxy:
        chosen |= dict.fromkeys(_PROXIES, proxy) | dict.fromkeys((b"no_proxy", b"NO_PROXY"), _OWN)
    for item in extra:
        name, equals, value = item.partition(b"=")
        if equals:
            chosen[name] = value
        elif name in environ:
            chosen[name] = environ[name]
    chosen.update({b"HOME": home, b"PWD": cwd, b"TMPDIR": b"/tmp", b"MUDROOM": b"1"})
    chosen.setdefault(b"PATH", b"/usr/local/bin:/usr/bin:/bin")
    return chosen


def unsigned(settings: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the variables by which git signs nothing, if one of its settings files names that: the key is outside, and
    each commit would fail. git-config(1), GIT_CONFIG_COUNT."""
    if not any(b"gpgsign" in text.lower() for text in settings):
        return {}
    variables = {b"GIT_CONFIG_COUNT": b"%d" % len(_SIGNATURES)}
    for number, name in enumerate(_SIGNATURES):
        variables |= {b"GIT_CONFIG_KEY_%d" % number: name, b"GIT_CONFIG_VALUE_%d" % number: b"false"}
    return variables


def gate_variables(variables: Mapping[bytes, bytes]) -> tuple[bytes, ...]:
    """Return the names of the variables that lead to the gate. Where every connection does so by itself, a program is
    better without them: many behave differently, and fail their own tests, with a proxy."""
    proxies = [name for name in _PROXIES if variables.get(name) == INSIDE]
    return (*proxies, *(name for name in (b"no_proxy", b"NO_PROXY") if proxies and variables.get(name) == _OWN))


def is_inside(environ: Mapping[bytes, bytes]) -> bool:
    """Return whether this process is a mudroom command, according to its environment. A project's settings can set the
    variable, so it may only cause refusals, never permissions."""
    return environ.get(b"MUDROOM") == b"1"


def _is_allowed(name: bytes, value: bytes, network: bool) -> bool:
    if name in PROXY_NAMES:
        return network
    if name not in _NAMES and not name.startswith(_PREFIXES):
        return False
    if name in _USELESS and any(word in value for word in _USELESS[name]):
        return False
    return not has_password(value)
