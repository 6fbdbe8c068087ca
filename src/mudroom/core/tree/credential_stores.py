"""The credential stores that an agent card or a policy can name: each store's files, and the parts of the user's
session that it needs.

This file holds only the table. At level 0 a store in the table is hidden from a command unless it is named; any other
file can be named by its path in the home directory (``~/.config/tool``). Rules:

1. If a tool has a directory of its own, the store is that directory. A program that replaces a file by a rename (as
   most do for tokens) then works inside the directory, and both sides see the same file. A store in ``files`` lies
   among other files: a command has a copy of it, as of agents' logins (``ext/agents/home/login.py``). At level 0 and in
   containers it can only be written in place.
2. A socket lets a command act through a program on the host: a command that reaches the session bus or the ssh-agent
   can do everything that these do for the user. Sockets are named one by one, like files.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.typing import NamedTuple


class CredentialStore(NamedTuple):
    about: str
    directories: tuple[bytes, ...] = ()
    """Relative to the home directory."""
    files: tuple[bytes, ...] = ()
    sockets: tuple[bytes, ...] = ()
    """``$NAME``: the path in this variable; otherwise an absolute path, or one relative to the user's runtime
    directory."""
    variables: tuple[bytes, ...] = ()
    """Environment variables without which the store is not found."""


_RUNTIME = b"XDG_RUNTIME_DIR"
_BUS = b"DBUS_SESSION_BUS_ADDRESS"

STORES: Mapping[str, CredentialStore] = {
    # agents: ext/agents/profiles lists which of their files are logins
    "aider": CredentialStore("aider", (b".aider",), (b".aider.conf.yml", b".aider.model.settings.yml")),
    "amp": CredentialStore("Amp", (b".config/amp", b".local/share/amp")),
    "claude": CredentialStore("Claude Code", (b".claude",), (b".claude.json",)),
    "cline": CredentialStore("Cline", (b".cline",)),
    "codex": CredentialStore("Codex", (b".codex",)),
    "continue": CredentialStore("Continue CLI", (b".continue",)),
    "copilot": CredentialStore("GitHub Copilot", (b".copilot", b".config/github-copilot")),
    "crush": CredentialStore("Crush", (b".config/crush", b".local/share/crush")),
    "cursor": CredentialStore("Cursor", (b".cursor", b".config/cursor")),
    "gemini": CredentialStore("Gemini CLI", (b".gemini",)),
    "goose": CredentialStore("Goose", (b".config/goose", b".local/share/goose", b".local/state/goose")),
    "gptme": CredentialStore("gptme", (b".config/gptme", b".local/share/gptme", b".local/state/gptme")),
    "kilo": CredentialStore("Kilo CLI", (b".local/share/kilo", b".config/kilo", b".local/state/kilo")),
    "kimi": CredentialStore("Kimi Code CLI", (b".kimi-code", b".kimi")),
    "mini-swe-agent": CredentialStore("mini-swe-agent", (b".config/mini-swe-agent",)),
    "opencode": CredentialStore(
        "opencode", (b".local/share/opencode", b".config/opencode", b".local/state/opencode")
    ),
    "openhands": CredentialStore("OpenHands", (b".openhands",)),
    "pi": CredentialStore("pi", (b".pi",)),
    "qwen": CredentialStore("Qwen Code", (b".qwen",)),
    # clouds and forges
    "aws": CredentialStore("AWS CLI", (b".aws",), variables=(b"AWS_PROFILE", b"AWS_REGION", b"AWS_DEFAULT_REGION")),
    "azure": CredentialStore("Azure CLI", (b".azure",)),
    "docker": CredentialStore("Docker's registries and contexts", (b".docker",)),
    "gcloud": CredentialStore("Google Cloud CLI", (b".config/gcloud",)),
    "gh": CredentialStore("GitHub CLI", (b".config/gh",)),
    "glab": CredentialStore("GitLab CLI", (b".config/glab-cli",)),
    "heroku": CredentialStore("Heroku CLI", (b".config/heroku", b".local/share/heroku")),
    "huggingface": CredentialStore("Hugging Face", (b".huggingface",)),
    "kube": CredentialStore("Kubernetes", (b".kube",)),
    "terraform": CredentialStore("Terraform", (b".terraform.d",), (b".terraformrc",)),
    # package registries
    "cargo": CredentialStore("crates.io", files=(b".cargo/credentials.toml", b".cargo/credentials")),
    "gem": CredentialStore("RubyGems", files=(b".gem/credentials", b".local/share/gem/credentials")),
    "gradle": CredentialStore("Gradle", files=(b".gradle/gradle.properties",)),
    "maven": CredentialStore("Maven", files=(b".m2/settings.xml", b".m2/settings-security.xml")),
    "npm": CredentialStore("npm", files=(b".npmrc",)),
    "nuget": CredentialStore("NuGet", (b".nuget/NuGet", b".config/NuGet")),
    "pypi": CredentialStore("PyPI", (b".config/pip", b".pip"), (b".pypirc",)),
    "yarn": CredentialStore("Yarn", files=(b".yarnrc.yml",)),
    # git, keys, everything else
    "git-credentials": CredentialStore("git's own store", files=(b".git-credentials", b".config/git/credentials")),
    "gnupg": CredentialStore("GnuPG", (b".gnupg",), sockets=(b"gnupg/S.gpg-agent",), variables=(_RUNTIME,)),
    "netrc": CredentialStore("curl, ftp and others", files=(b".netrc", b"_netrc")),
    "pass": CredentialStore("pass", (b".password-store",)),
    "ssh": CredentialStore("keys and settings of ssh", (b".ssh",)),
    "ssh-agent": CredentialStore("the agent of ssh", sockets=(b"$SSH_AUTH_SOCK",), variables=(b"SSH_AUTH_SOCK",)),
    "keychain": CredentialStore(
        "GNOME Keyring or KWallet, by the session bus; on macOS the keychain",
        (b".local/share/keyrings", b".local/share/kwalletd", b"Library/Keychains"),
        sockets=(b"bus",),
        variables=(_BUS, _RUNTIME),
    ),
    "browser": CredentialStore(
        "profiles of browsers: cookies, passwords",
        (
            b".mozilla", b".config/google-chrome", b".config/chromium", b".config/BraveSoftware",
            b".config/microsoft-edge", b"Library/Application Support/Google/Chrome", b"Library/Cookies",
            b"Library/Application Support/Firefox", b"Library/Application Support/BraveSoftware", b"Library/Safari",
            b"Library/Application Support/Microsoft Edge", b"Library/Application Support/Arc",
            b"Library/Containers/com.apple.Safari",
        ),
    ),
    "display": CredentialStore(
        "the screen, for a browser that logs in",
        files=(b".Xauthority",),
        sockets=(b"/tmp/.X11-unix", b"$WAYLAND_DISPLAY", b"$XAUTHORITY"),
        variables=(
            b"DISPLAY", b"WAYLAND_DISPLAY", b"XAUTHORITY", b"XDG_SESSION_TYPE", b"XDG_CURRENT_DESKTOP", _RUNTIME,
        ),
    ),
}  # fmt: skip

AGENTS = (
    "aider", "amp", "claude", "cline", "codex", "continue", "copilot", "crush", "cursor", "gemini", "goose", "gptme",
    "kilo", "kimi", "mini-swe-agent", "opencode", "openhands", "pi", "qwen",
)  # fmt: skip
"""Agents' stores. These also hold settings that run later, so only their logins are opened
(``ext/agents/home/login.py``)."""


def store_places(*, agents: bool = True) -> tuple[bytes, ...]:
    """Return every path in the home directory that is hidden unless its store is named. ``agents``: theirs, too."""
    stores = (store for name, store in STORES.items() if agents or name not in AGENTS)
    return tuple(place for store in stores for place in (*store.directories, *store.files))
