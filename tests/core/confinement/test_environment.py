"""The environment: what is not on the list does not get in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.confinement.environment import select_image_variables, select_variables

OURS = {b"HOME": b"/home/u", b"PWD": b"/p", b"TMPDIR": b"/tmp", b"MUDROOM": b"1"}
PATH = {b"PATH": b"/usr/local/bin:/usr/bin:/bin"}
LEAKS = b"""
AWS_SECRET_ACCESS_KEY GITHUB_TOKEN OPENAI_API_KEY ANTHROPIC_API_KEY NPM_TOKEN SSH_AUTH_SOCK GPG_AGENT_INFO DOCKER_HOST
DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY XDG_RUNTIME_DIR LD_PRELOAD BASH_ENV ENV PS4 PROMPT_COMMAND
PYTHONSTARTUP PERL5OPT RUBYOPT GIT_DIR GIT_SSH_COMMAND KUBECONFIG DATABASE_URL PGPASSWORD MYSQL_PWD PIP_INDEX_URL
lc_all Path GIT_CONFIG_GLOBAL GIT_CONFIG_COUNT GIT_ASKPASS SSH_ASKPASS LD_AUDIT LD_DEBUG PYTHONHOME PYTHONINSPECT
PYTHONBREAKPOINT NODE_REPL_HISTORY NODE_AUTH_TOKEN npm_config__auth NPM_CONFIG_TOKEN CARGO_REGISTRY_TOKEN CARGO_HOME
GOPATH GOPROXY UV_INDEX_URL PIP_EXTRA_INDEX_URL TWINE_PASSWORD HF_TOKEN GH_TOKEN GITLAB_TOKEN SLACK_WEBHOOK_URL
GOOGLE_APPLICATION_CREDENTIALS AZURE_CLIENT_SECRET VAULT_TOKEN XAUTHORITY SUDO_USER TMUX STY SSH_CONNECTION
PERL5LIB RUBYLIB JAVA_TOOL_OPTIONS _JAVA_OPTIONS CLASSPATH IFS SHELLOPTS BASHOPTS CDPATH BASH_FUNC_x%% HISTFILE
XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME NOTIFY_SOCKET INVOCATION_ID KRB5CCNAME
""".split()
PROXIES = b"http_proxy https_proxy ftp_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY".split()


def selected(environ: dict[bytes, bytes], *extra: bytes, network: bool = False) -> dict[bytes, bytes]:
    """Without what every command gets."""
    found = select_variables(environ, home=b"/home/u", cwd=b"/p", network=network, extra=extra)
    assert found.items() >= OURS.items()
    return {name: value for name, value in found.items() if name not in OURS and (name, value) not in PATH.items()}


def test_what_every_command_gets() -> None:
    assert select_variables({}, home=b"/home/u", cwd=b"/p", network=False) == OURS | PATH


def test_home_and_directory_are_those_of_the_sandbox() -> None:
    assert selected({b"HOME": b"/real", b"PWD": b"/else", b"TMPDIR": b"/var/tmp", b"OLDPWD": b"/x"}) == {}


@pytest.mark.parametrize("name", [b"PATH", b"LANG", b"LC_ALL", b"LC_X", b"TERM", b"VIRTUAL_ENV", b"NODE_ENV", b"CC"])
def test_what_is_taken_over(name: bytes) -> None:
    assert selected({name: b"\xffvalue=\n"}) == {name: b"\xffvalue=\n"}


@pytest.mark.parametrize("name", LEAKS)
@pytest.mark.parametrize("network", [False, True])
def test_what_is_not(name: bytes, network: bool) -> None:
    assert selected({name: b"secret"}, network=network) == {}


@pytest.mark.parametrize("name", PROXIES)
def test_proxies_only_with_a_network(name: bytes) -> None:
    environ = {name: b"http://user:password@proxy"}
    assert selected(environ, network=True) == environ
    assert selected(environ) == {}


@pytest.mark.parametrize(
    ("name", "value", "passes"),
    [
        (b"NODE_OPTIONS", b"--max-old-space-size=4096", True),
        (b"NODE_OPTIONS", b"--require /home/u/.vscode/bootloader.js", False),
        (b"NODE_OPTIONS", b"--inspect=127.0.0.1:9229", False),
        (b"MAKEFLAGS", b"-j4", True),
        (b"MAKEFLAGS", b" -j --jobserver-auth=3,4", False),
        (b"PIP_FIND_LINKS", b"https://wheels.example/simple", True),
        (b"PIP_FIND_LINKS", b"https://user:secret@wheels.example/simple", False),
        (b"EDITOR", b"vim ssh://git@host", True),
    ],
)
def test_what_depends_on_the_value(name: bytes, value: bytes, passes: bool) -> None:
    assert selected({name: value}, network=True) == ({name: value} if passes else {})


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ([b"TOKEN"], {b"TOKEN": b"t"}),
        ([b"TOKEN=other"], {b"TOKEN": b"other"}),
        ([b"TOKEN="], {b"TOKEN": b""}),
        ([b"NEW=a=b"], {b"NEW": b"a=b"}),
        ([b"ABSENT"], {}),
        ([b"TOKEN", b"TOKEN=last"], {b"TOKEN": b"last"}),
        ([b"PATH=/only"], {b"PATH": b"/only"}),
        ([b"HOME=/elsewhere"], {}),
    ],
)
def test_what_the_policy_adds(extra: list[bytes], expected: dict[bytes, bytes]) -> None:
    assert selected({b"TOKEN": b"t", b"SECRET": b"s"}, *extra) == expected


@given(st.dictionaries(st.binary(min_size=1, max_size=6), st.binary(max_size=4), max_size=6), st.booleans())
def test_no_name_gets_in_by_chance(environ: dict[bytes, bytes], network: bool) -> None:
    """Names with a byte that no variable of the allowlist has never pass, whatever they begin or end with."""
    strange = {name + b"!": value for name, value in environ.items() if not name.startswith(b"LC_")}
    assert selected(strange, network=network) == {}


# --- in an image --------------------------------------------------------------------------------------------------


def inside(
    image: dict[bytes, bytes], environ: dict[bytes, bytes], *extra: bytes, proxy: bytes = b""
) -> dict[bytes, bytes]:
    return select_image_variables(image, environ, home=b"/home/u", cwd=b"/p", user=b"u", proxy=proxy, extra=extra)


def test_an_image_has_its_own_variables_and_of_the_hosts_only_the_terminals() -> None:
    host = {
        b"PATH": b"/host",
        b"LANG": b"de",
        b"VIRTUAL_ENV": b"/v",
        b"PYTHONPATH": b"/x",
        b"TERM": b"xterm",
        b"CI": b"1",
    }
    image = {b"PATH": b"/image", b"JAVA_HOME": b"/j", b"HOME": b"/root", b"USER": b"root", b"TERM": b"dumb"}
    assert inside(image, host) == OURS | {
        b"PATH": b"/image", b"JAVA_HOME": b"/j", b"USER": b"u", b"LOGNAME": b"u", b"TERM": b"xterm", b"CI": b"1",
    }  # fmt: skip


def test_an_image_that_says_nothing_has_the_usual_path() -> None:
    assert inside({}, {b"PATH": b"/host"})[b"PATH"] == b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.mark.parametrize("name", PROXIES)
def test_an_images_proxies_are_not_the_gates(name: bytes) -> None:
    assert name not in inside({name: b"http://corp"}, {name: b"http://host"})
    found = inside({name: b"http://corp"}, {}, proxy=b"http://127.0.0.1:3128")
    assert found.get(name) in (None, b"http://127.0.0.1:3128", b"localhost,127.0.0.1,::1")


def test_what_is_asked_for_counts_before_the_image() -> None:
    found = inside({b"A": b"1", b"B": b"2"}, {b"A": b"host", b"T": b"secret"}, b"A", b"B=3", b"T", b"NONE")
    assert (found[b"A"], found[b"B"], found[b"T"]) == (b"host", b"3", b"secret")
    assert b"NONE" not in found


@pytest.mark.parametrize("name", LEAKS)
def test_what_of_the_host_is_not_in_an_image(name: bytes) -> None:
    assert name not in inside({}, {name: b"secret"})
