"""The environment: what is not on the list does not get in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.confinement.environment import PROXY_NAMES, gate_variables, select_variables
from mudroom.sandbox.linux.plan import PROXY_PORT
from tiers import each

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


@each("name", [b"PATH", b"LANG", b"LC_ALL", b"LC_X", b"TERM", b"VIRTUAL_ENV", b"NODE_ENV", b"CC"])
def test_what_is_taken_over(name: bytes) -> None:
    assert selected({name: b"\xffvalue=\n"}) == {name: b"\xffvalue=\n"}


@pytest.mark.parametrize("name", LEAKS)
@pytest.mark.parametrize("network", [False, True])
def test_what_is_not(name: bytes, network: bool) -> None:
    assert selected({name: b"secret"}, network=network) == {}


@each("name", PROXIES)
def test_proxies_only_with_a_network(name: bytes) -> None:
    environ = {name: b"http://user:password@proxy"}
    assert selected(environ, network=True) == environ
    assert selected(environ) == {}


def test_the_variables_that_lead_to_the_gate() -> None:
    gate = b"http://127.0.0.1:%d" % PROXY_PORT
    found = select_variables({}, home=b"/h", cwd=b"/p", network=False, proxy=gate, extra=(b"ALL_PROXY=socks5://a:1",))
    names = gate_variables(found)
    assert {name for name in found if name.lower().endswith(b"_proxy")} - set(names) == {b"ALL_PROXY"}
    assert set(names) <= PROXY_NAMES
    assert gate_variables({b"http_proxy": b"http://proxy.corp:8080", b"no_proxy": b"localhost,127.0.0.1,::1"}) == ()


@each(
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


@each(
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
