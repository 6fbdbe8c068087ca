"""The private home: toolchains without their credentials, caches that persist, and no other persistent files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from box import if_namespaces
from conftest import Place
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.sandbox.host import host
from mudroom.sandbox.host.host import landlock_abi

pytestmark = [pytest.mark.both_users, pytest.mark.root]

MODES = ["overlay", "copy", *(["landlock"] if landlock_abi() else [])]
HOME = {
    ".cargo/bin/tool": "tool",
    ".cargo/credentials.toml": "hidden",
    ".local/share/uv/credentials/credentials.toml": "hidden",
    ".local/share/uv/python/x": "python",
    "miniconda3/.condarc": "hidden",
    "bin/id_rsa": "hidden",
    "bin/own": "own",
    ".netrc": "machine",
    ".npmrc": "hidden",
    ".pypirc": "hidden",
    ".config/gh/hosts.yml": "hidden",
    ".gradle/gradle.properties": "hidden",
    ".m2/settings.xml": "hidden",
    ".ssh/id_ed25519": "hidden",
    ".ssh/known_hosts": "hosts",
    ".aws/credentials": "hidden",
    ".git-credentials": "hidden",
}


def furnish(place: Place) -> None:
    for name, content in HOME.items():
        path = place.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def in_mode(place: Place, mode: str, script: str, settings: Settings | None = None) -> str:
    session = place.session((settings or Settings())._replace(view="copy" if mode == "copy" else "auto"))
    if mode == "landlock":
        session.machine.confinement.mode = "landlock"
    result = session.run([b"sh", b"-c", script.encode()])
    return (result.stdout + result.stderr).decode()


@pytest.mark.parametrize("mode", MODES)
def test_toolchains_are_there_and_credentials_are_not(place: Place, mode: str) -> None:
    furnish(place)
    said = in_mode(place, mode, f"cd {place.home}; for f in {' '.join(HOME)}; do echo $f: $(cat $f 2>&1); done")
    assert "hidden" not in said and "machine" not in said
    for name in (".cargo/bin/tool", ".local/share/uv/python/x", "bin/own"):
        assert f"{name}: {HOME[name]}\n" in said


DEEP = {
    ".pyenv/bin/pyenv": "a program beside the versions",
    ".nvm/versions/node/v22.1.0/etc/npmrc": "//registry.example/:_authToken=hunter2",
    ".nvm/versions/node/v20.1.0/etc/npmrc": "prefix=/opt",
    ".pyenv/versions/3.12.1/pip.conf": "[global]\nindex-url = https://ada:hunter2@pypi.example/simple",
    ".sdkman/candidates/maven/3.9/conf/settings.xml": "<settings><!-- <password>repopwd</password> --></settings>",
    ".sdkman/candidates/maven/3.8/conf/settings.xml": "<settings><password>hunter2</password></settings>",
    "miniconda3/ssl/cert.pem": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
}


@pytest.mark.parametrize("mode", MODES)
def test_credentials_deep_in_toolchains_are_hidden_by_their_content(place: Place, mode: str) -> None:
    for name, content in DEEP.items():
        place.home.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        place.home.joinpath(name).write_text(content)
    said = in_mode(place, mode, f"cd {place.home}; cat {' '.join(DEEP)}")
    assert "hunter2" not in said and "index-url" not in said
    assert all(part in said for part in ("prefix=/opt", "repopwd", "MIIB"))


@pytest.mark.parametrize("mode", MODES)
def test_another_name_of_a_credential_is_hidden(place: Place, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host has made it, where no credential is searched for by name."""
    version = place.home / ".nvm/versions/node/v22.1.0"
    for name in ("etc", "lib/node_modules/npm"):
        (version / name).mkdir(parents=True)
    (version / "etc/npmrc").write_text("//registry.example/:_authToken=hunter2")
    os.link(version / "etc/npmrc", version / "lib/node_modules/npm/copy.txt")
    os.link(version / "etc/npmrc", place.home / "elsewhere")
    said = in_mode(place, mode, f"cd {version}; cat etc/npmrc lib/node_modules/npm/copy.txt; echo end")
    assert "hunter2" not in said and "end\n" in said
    monkeypatch.setattr(host, "_MOST_FOR_LINKS", 1)
    (note,) = (note for note in place.session().run([b"true"]).notes if "toolchains" in note)
    assert "not all were searched for credentials" in note


def test_toolchains_that_are_too_large_to_search_are_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.home / ".nvm/a/b").mkdir(parents=True)
    monkeypatch.setattr(host, "_MOST_DIRECTORIES", 1)
    session = place.session()
    first = os.fsdecode(session.machine.confinement.host.credentials.unsearched)
    (note,) = (note for note in session.run([b"true"]).notes if "toolchains" in note)
    assert os.path.isdir(first)
    assert note == (
        "the toolchains have so many directories that not all were searched for credentials: those below "
        f"{first} were not"
    )


def test_a_credential_that_comes_into_a_shown_file_is_hidden(place: Place) -> None:
    npmrc = place.home / ".nvm/versions/node/v22.1.0/etc/npmrc"
    npmrc.parent.mkdir(parents=True)
    npmrc.write_text("prefix=/opt")
    session = place.session()
    assert session.run([b"cat", os.fsencode(npmrc)], fork="a").stdout == b"prefix=/opt"
    npmrc.write_text("//registry.example/:_authToken=hunter2")  # by npm login
    assert session.run([b"cat", os.fsencode(npmrc)], fork="a").stdout == b""


@pytest.mark.parametrize("mode", MODES)
def test_credentials_are_shown_one_by_one(place: Place, mode: str) -> None:
    furnish(place)
    settings = Settings(credentials=(b"~/.netrc", b"~/.ssh/known_hosts", b"~/bin/id_rsa"))
    script = f"cd {place.home}; cat .netrc .ssh/known_hosts bin/id_rsa; echo x >> .netrc; ls .ssh; cat .ssh/id_ed25519"
    said = in_mode(place, mode, script, settings)
    assert said.startswith("machinehostshidden")
    assert said.count("hidden") == 1
    assert (place.home / ".netrc").read_text() == "machine"


def test_a_credential_that_is_not_there_is_one_line(place: Place) -> None:
    result = place.session(Settings(credentials=(b"~/.netrc",))).run([b"true"])
    assert [note for note in result.notes if "netrc" in note] == ["credentials.show: ~/.netrc is not there"]


def test_a_directory_of_credentials_is_refused(place: Place) -> None:
    furnish(place)
    with pytest.raises(UsageError, match=r"credentials.show: ~/.ssh is no file"):
        place.session(Settings(credentials=(b"~/.ssh",))).run([b"true"])


def test_one_that_leads_into_our_own_state_is_not_shown(place: Place) -> None:
    session = place.session(Settings(credentials=(b"~/.netrc",)))
    (place.home / ".netrc").symlink_to(os.fsdecode(session.vault.path) + "/journal.db")
    result = session.run([b"sh", b"-c", b"cat ~/.netrc"])
    assert result.stdout == b""


@if_namespaces
@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.parametrize("token", ["", "[github]\n\ttoken = hidden\n"], ids=["settings", "with a secret"])
def test_git_knows_who_the_user_is(place: Place, token: str) -> None:
    (place.home / ".gitconfig").write_text("[user]\n\tname = A B\n\temail = a@b\n[alias]\n\tco = checkout\n" + token)
    said = in_mode(place, "overlay", "git config user.name; git config user.email; cat ~/.gitconfig")
    assert said.startswith("A B\na@b\n")
    assert "hidden" not in said
    assert ("alias" in said) is not bool(token)


@if_namespaces
@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_what_stays_of_a_home_and_what_does_not(place: Place, view: str) -> None:
    caches = [".cache/pip", ".npm/_cacache", ".cargo/registry", ".cargo/git", "go/pkg/mod", ".gradle/caches"]
    made = " ".join(f"{cache}/mark" for cache in (*caches, ".config/x", "left"))
    in_mode(place, view, f"cd; for f in {made}; do mkdir -p $(dirname $f); echo kept > $f; done")
    assert list(place.home.iterdir()) == []
    place.close()
    found = in_mode(place, view, f"cd; for f in {made}; do test -e $f && echo $f; done")
    assert found.split()[: len(caches)] == [f"{cache}/mark" for cache in caches]
    kept = Path(os.fsdecode(place.session().vault.cache)).rglob("mark")
    assert len(list(kept)) == len(caches)
    assert not any(path.name == "left" for path in place.home.iterdir())


@if_namespaces
def test_the_cache_of_the_host_is_another(place: Place) -> None:
    (place.home / ".cache").mkdir()
    (place.home / ".cache/theirs").write_text("x")
    assert in_mode(place, "overlay", "ls ~/.cache; echo ours > ~/.cache/ours") == ""
    assert os.listdir(place.home / ".cache") == ["theirs"]


@if_namespaces
def test_pip_installs_a_local_wheel(place: Place) -> None:
    wheel = place.project / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "ANSWER = 42\n")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("pip is not installed")
    install = f"{sys.executable} -m pip install -q --no-index --target lib {wheel.name}"
    use = f"PYTHONPATH=lib {sys.executable} -c 'import tiny; print(tiny.ANSWER)'"
    said = in_mode(place, "overlay", f"{install} && {use}")
    assert said.splitlines()[-1] == "42"
    assert not Path(place.project / "lib").exists()


def test_a_credential_that_the_host_replaces_stays_hidden(place: Place) -> None:
    """A mount on a file disappears as soon as another file is renamed over it, in every namespace: a refreshed token
    must not be uncovered for later commands."""
    token = place.home / ".pyenv/.npmrc"
    token.parent.mkdir()
    token.write_text("hidden")
    session = place.session()
    for number in range(4):
        result = session.run([b"sh", b"-c", b"cat ~/.pyenv/.npmrc"], fork="a")
        assert (result.exit_code, result.stdout) == (1, b"")
        if number == 2:  # the third command has had a prepared root
            (place.home / "new").write_text("hidden, too")
            os.rename(place.home / "new", token)
