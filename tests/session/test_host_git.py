"""Settings of the user's git that need what no sandbox has."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from conftest import Place
from mudroom.core.confinement.environment import unsigned

pytestmark = pytest.mark.both_users
OFF = {
    b"GIT_CONFIG_COUNT": b"3",
    b"GIT_CONFIG_KEY_0": b"commit.gpgsign",
    b"GIT_CONFIG_VALUE_0": b"false",
    b"GIT_CONFIG_KEY_1": b"tag.gpgsign",
    b"GIT_CONFIG_VALUE_1": b"false",
    b"GIT_CONFIG_KEY_2": b"push.gpgsign",
    b"GIT_CONFIG_VALUE_2": b"false",
}


def test_nothing_is_signed_inside_if_a_file_wants_signatures() -> None:
    me = b"[user]\n\tname = me\n"
    assert unsigned([b"", me]) == {}
    assert unsigned([me, b"[commit]\n\tgpgSign = true\n"]) == OFF


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_commit_inside_is_made_and_not_signed(place: Place) -> None:
    place.write("file", "one\n")
    user = "[user]\n\tname = me\n\temail = me@example.org\n\tsigningkey = /absent/key.pub\n"
    place.home.mkdir(exist_ok=True)
    (place.home / ".gitconfig").write_text(user + "[commit]\n\tgpgsign = true\n[gpg]\n\tformat = ssh\n")
    subprocess.run(["git", "init", "-q"], cwd=place.project, check=True)
    with place.session() as session:
        script = b"git add file && git commit -qm one && git cat-file commit HEAD"
        result = session.run([b"sh", b"-c", script])
        assert result.exit_code == 0, result.stderr
        assert b"gpgsig" not in result.stdout and result.stdout.endswith(b"\none\n")
        asked = session.run([b"sh", b"-c", b"git commit --allow-empty -qm two -S"])
        assert asked.exit_code, "who asks for a signature gets git's own error"


def git(place: Place, config: str, command: str, files: dict[str, str] | None = None) -> str:
    """Return what a command prints in a fork, with these settings and files in the user's home."""
    (place.home / ".gitconfig").write_text("[user]\n\tname = me\n\temail = me@example.org\n" + config)
    for name, content in (files or {}).items():
        (place.home / name).parent.mkdir(parents=True, exist_ok=True)
        (place.home / name).write_text(content)
    subprocess.run(["git", "init", "-q"], cwd=place.project, check=True)
    with place.session() as session:
        result = session.run([b"sh", b"-c", command.encode()])
    return (result.stdout + result.stderr).decode()


COMMIT = "echo 1 >f; git add f; GIT_EDITOR='sed -i 1s/^/x/' git commit -q -a {}&& git log -1 --format='%an %s'"
NAMED = {
    "include": ("[include]\n\tpath = ~/.gitconfig.work\n", COMMIT.format("-m one "), "work one\n"),
    "relative include": ("[include]\n\tpath = .gitconfig.work\n", COMMIT.format("-m one "), "work one\n"),
    "include of an include": ("[include]\n\tpath = git/again\n", COMMIT.format("-m one "), "work one\n"),
    "includeIf": ('[includeIf "gitdir:/**"]\n\tpath = ~/.gitconfig.work\n', COMMIT.format("-m one "), "work one\n"),
    "template": ("[commit]\n\ttemplate = ~/git/message\n", COMMIT.format(""), "me xmessage of mine\n"),
    "ignored names": ("[core]\n\texcludesFile = ~/git/ignored\n", "touch a.tmp; git status --short", ""),
    "attributes": ("[core]\n\tattributesFile = ~/git/attributes\n", "git check-attr text a", "a: text: set\n"),
    "certificates": ("[http]\n\tsslCAInfo = ~/git/ca.pem\n", "test -r ~/git/ca.pem && echo there", "there\n"),
    "of a host": ('[http "https://x"]\n\tsslCAInfo = ~/git/ca.pem\n', "test -r ~/git/ca.pem && echo there", "there\n"),
}
FILES = {
    ".gitconfig.work": "[user]\n\tname = work\n",
    "git/again": "[include]\n\tpath = ../.gitconfig.work\n",
    "git/message": "message of mine\n",
    "git/ignored": "*.tmp\n",
    "git/attributes": "* text\n",
    "git/ca.pem": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("what", NAMED)
def test_a_file_that_a_setting_names_is_there(place: Place, what: str) -> None:
    config, command, expected = NAMED[what]
    assert git(place, config, command, FILES) == expected


HIDDEN = {
    "a key's place": ("[core]\n\texcludesFile = ~/.ssh/x\n", ".ssh/x", "*.tmp"),
    "a store": ("[include]\n\tpath = ~/.aws/x\n", ".aws/x", "[user]\n\tname = x\n"),
    "a key": ("[commit]\n\ttemplate = ~/message\n", "message", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n"),
    "a token": (
        "[include]\n\tpath = ~/own\n",
        "own",
        "[http]\n\textraHeader = Authorization: Bearer ghp_0123456789ab\n",
    ),
    "outside the home": ("[core]\n\texcludesFile = ~/../beside\n", "../beside", "*.tmp"),
    "not named": ("", "file", "x"),
}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("what", HIDDEN)
def test_a_secret_that_a_setting_names_stays_hidden(place: Place, what: str) -> None:
    config, name, content = HIDDEN[what]
    assert git(place, config, f"cat ~/{name} 2>/dev/null; echo over", {name: content}) == "over\n"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_link_to_a_secret_stays_hidden(place: Place) -> None:
    (place.home / "git").mkdir(parents=True)
    (place.home / "git/link").symlink_to("../.ssh/x")
    config = "[core]\n\texcludesFile = ~/git/link\n"
    assert git(place, config, "cat ~/git/link 2>/dev/null; echo over", {".ssh/x": "key"}) == "over\n"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_file_of_the_project_is_the_fork_s(place: Place) -> None:
    place.project = place.home / "proj"
    place.project.mkdir(parents=True)
    config = "[include]\n\tpath = ~/proj/inc\n"
    shown = git(place, config, "git config user.name; echo >>inc && wc -l <inc", {"proj/inc": "[user]\n\tname = in\n"})
    assert shown == "in\n3\n" and (place.project / "inc").read_text() == "[user]\n\tname = in\n"


ASK = "printf 'protocol=https\nhost=h\n\n' | GIT_TERMINAL_PROMPT=0 git credential fill"
WITHOUT = {
    "a store of passwords": ("[credential]\n\thelper = store\n", ASK, "could not read Username"),
    "a helper that is absent": ("[credential]\n\thelper = absent\n", ASK, "'credential-absent' is not a git command"),
    "a key": ("[core]\n\tsshCommand = ssh -i ~/.ssh/id\n", "git ls-remote ssh://g@127.0.0.1/x", "not accessible"),
    "a program": ("[gpg]\n\tprogram = /absent/gpg\n", "git commit -S --allow-empty -m x", "cannot run /absent/gpg"),
    "signers beside keys": (
        '[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tallowedSignersFile = ~/.ssh/signers\n',
        "cat $(git config --path gpg.ssh.allowedSignersFile)",
        "No such file",
    ),
}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("what", WITHOUT)
def test_git_says_what_a_setting_lacks(place: Place, what: str) -> None:
    config, command, said = WITHOUT[what]
    files = {".git-credentials": "https://user:password@h\n", ".ssh/id": "key", ".ssh/signers": "me ssh-ed25519 AAAA\n"}
    shown = git(place, config, command, files)
    assert said in shown and "password=" not in shown
