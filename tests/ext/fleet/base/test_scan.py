"""A project's base: the files that are in it, those that never are, and edits while it is made."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from base_transfer import make, scanned

from conftest import tick
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.ext.fleet.base.manifest import EMPTY, Row, base_id, digest_of_content, walk
from mudroom.ext.fleet.base.pack import packs
from mudroom.ext.fleet.base.scan import BaseChanged, Scanned, ScannedObjects
from mudroom.stage.beneath import LastDirectory
from mudroom.stage.exclude import choose as choose_entries
from whole_text import whole

TOKEN = b"s3cret-token-"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make(tmp_path / "p", {"a.py": b"a\n", "src/b.py": b"b\n", "src/deep/c.py": b"c\n", "src/empty": b""})


def rows(found: Scanned) -> dict[str, Row]:
    return {
        os.fsdecode(path + b"/" + row.name if path else row.name): row
        for path, below in walk(found.base.root, found.nodes.__getitem__)
        for row in below
    }


def sent(found: Scanned) -> bytes:
    """Return everything that a worker could ask for, unpacked, and the offer."""
    with ScannedObjects(found) as objects:
        contents = [objects.read(digest, 0, objects.size(digest)) for digest in found.files]
    return b"".join([*contents, *found.nodes.values(), repr(found.base).encode()])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Paths of the files that are opened."""
    paths: list[bytes] = []
    real = LastDirectory.open_file

    def noted(self: LastDirectory, path: bytes) -> int:
        paths.append(path)
        return real(self, path)

    monkeypatch.setattr(LastDirectory, "open_file", noted)
    return paths


def test_every_file_directory_and_link_is_a_row(project: Path) -> None:
    (project / "link").symlink_to("src/b.py")
    (project / "out").symlink_to("/etc/passwd")
    (project / "up").symlink_to("../../x")
    (project / os.fsdecode(b"\xff\xfe")).write_bytes(b"name")
    (project / "a.py").chmod(0o755)
    (project / "src/deep").chmod(0o700)
    found = scanned(project)
    by_path = rows(found)
    assert sorted(by_path) == sorted(
        ["a.py", "link", "out", "src", "src/b.py", "src/deep", "src/deep/c.py", "src/empty", "up", "\udcff\udcfe"]
    )
    assert by_path["a.py"] == Row(
        b"a.py", "f", 0o755, (project / "a.py").stat().st_mtime_ns, 2, digest_of_content(b"a\n")
    )
    assert by_path["src/deep"].mode == 0o700
    assert [by_path[name].content for name in ("link", "out", "up")] == [b"src/b.py", b"/etc/passwd", b"../../x"]
    assert by_path["src/empty"].content == EMPTY and EMPTY not in found.files
    assert found.size == sum(row.size for row in by_path.values())
    assert found.entries == len(by_path)
    assert found.base[1:] == (os.fsencode(project), b"/home/ann", (), (), 0o022)


def test_the_same_files_are_the_same_base_and_a_temporary_file_leaves_no_trace(project: Path) -> None:
    first = scanned(project)
    (project / "src/.swp").write_bytes(b"x")
    (project / "src/.swp").unlink()
    assert base_id(scanned(project).base) == base_id(first.base)
    (project / "src/deep/c.py").write_bytes(b"d\n")
    second = scanned(project)
    assert len(second.nodes.keys() - first.nodes.keys()) == 3  # root, src, src/deep
    assert len(second.files.keys() - first.files.keys()) == 1


PLANTED = (
    ".env",
    ".env.production",
    "src/.env",
    "src/server.pem",
    "src/deep/id_rsa",
    "config/credentials.json",
    ".netrc",
    ".pgpass",
    "ID_ED25519",
    "terraform.tfvars",
    "kubeconfig",
    "deep/a/b/c/d/secrets.yml",
    "vendor/lib/.env",
    "node_modules/x/.env.local",
    "node_modules/x/.netrc",
    ".npmrc",
    ".yarnrc.yml",
    "pip.conf",
    "gradle.properties",
    ".aws/credentials",
    "dotfiles/.docker/config.json",
    ".kube/config",
    ".config/gh/hosts.yml",
    ".envrc",
    "infra/terraform.tfstate",
    "auth.json",
    ".git/config",
    ".git/hooks/pre-commit",
    ".git/logs/HEAD",
    ".git/FETCH_HEAD",
    ".git/modules/sub/config",
    ".git/modules/sub/hooks/post-checkout",
    "sub/.git/config",
    ".mudroom/local/policy.yaml",
    ".mudroom/local/deep/key",
)


@pytest.mark.parametrize("git", [False, True])
def test_no_planted_secret_is_in_a_base(project: Path, *, git: bool) -> None:
    make(project, {name: b"_authToken=" + TOKEN + name.encode() for name in PLANTED})
    make(project, {".git/HEAD": b"ref: refs/heads/main\n", ".git/objects/ab/cd": b"object"})
    os.link(project / ".env", project / "harmless.txt")
    found = scanned(project, git=git)
    assert TOKEN not in sent(found)
    by_path = rows(found)
    expected = {name for name in PLANTED if not name.startswith((".git/", "sub/.git", ".mudroom/local"))}
    assert set(map(os.fsdecode, found.base.masked)) == expected | {"harmless.txt"}
    assert all(by_path[name].content == EMPTY for name in (*expected, "harmless.txt"))
    assert (".git/objects/ab/cd" in by_path) is git
    assert not any(name.startswith((".mudroom/local", ".git/hooks")) for name in by_path)
    assert f"{len(found.base.masked)} secrets are sent empty" in found.notes[0]


def test_other_names_and_what_links_lead_to_are_empty(project: Path) -> None:
    make(project, {".npmrc": b"_authToken=" + TOKEN, "conf/production": TOKEN, "conf/plain": b"KEY"})
    os.link(project / ".npmrc", project / "notes.txt")
    for link, target in {
        ".env": "conf/next",
        "conf/next": "production",
        "a.pem": "missing",
        "b.pem": f"{project}/conf/plain",
    }.items():
        (project / link).symlink_to(target)
    found = scanned(project)
    assert TOKEN not in sent(found)
    assert found.base.masked == (b".npmrc", b"conf/plain", b"conf/production", b"notes.txt")


def test_files_that_only_look_like_secrets_are_sent(project: Path) -> None:
    make(
        project,
        {
            ".env.example": b"KEY=",
            "venv/lib/site-packages/certifi/cacert.pem": b"certificates",
            ".npmrc": b"registry=https://example.org\n//example.org/:_authToken=${NPM_TOKEN}\n",
            "gradle.properties": b"org.gradle.jvmargs=-Xmx2g\n",
            ".envrc": b"layout python\n",
            "src/config.json": b'{"bos_token_id": 1}',
            "src/credentials": b"",
            "id_rsa.pub": b"public",
        },
    )
    found = scanned(project)
    assert found.base.masked == ()
    assert all(
        row.size
        for name, row in rows(found).items()
        if row.kind == "f" and name not in ("src/empty", "src/credentials")
    )


def test_the_policy_shows_and_masks(project: Path) -> None:
    make(project, {".env": b"shown", "data/prod.dump": b"masked", "tests/server.key": b"masked"})
    found = scanned(project, Settings(secrets_show=(b".env",), secrets_mask=(b"*.dump",)))
    assert found.base.masked == (b"data/prod.dump", b"tests/server.key")
    assert b"shown" in sent(found)


def test_what_is_no_file_stays_and_no_mode_gives_rights(project: Path) -> None:
    os.mkfifo(project / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        before = Path.cwd()
        os.chdir(project)  # a socket's path is short
        bound.bind("socket")
        os.chdir(before)
        (project / "a.py").chmod(0o6755)
        (project / "src").chmod(0o3777)
        by_path = rows(scanned(project))
    assert "fifo" not in by_path and "socket" not in by_path
    assert by_path["a.py"].mode == 0o755 and by_path["src"].mode == 0o777


def test_excluded_paths_are_named_without_what_is_below(project: Path) -> None:
    make(project, {"build/x/o": bytes(3000), "src/__pycache__/b.pyc": b"c", "big/data": bytes(100), "logs/l": b"l"})
    (project / ".gitignore").write_bytes(b"logs/\n")
    found = scanned(project, Settings(copy_exclude=(b"big",), copy_limit=2000))
    assert found.base.excluded == (b"big", b"build", b"logs", b"src/__pycache__")
    assert sorted(name for name in rows(found) if "/" not in name) == [".gitignore", "a.py", "src"]
    assert any(note.startswith("left out of the base") for note in found.notes)


def test_git_is_sent_without_hooks_settings_and_urls(project: Path) -> None:
    kept = ("HEAD", "index", "packed-refs", "refs/heads/main", "objects/ab/c", "modules/a/b/HEAD", "info/exclude")
    gone = ("config", "hooks/x", "logs/HEAD", "FETCH_HEAD", "description", "modules/a/b/config", "modules/a/b/hooks/x")
    make(project, {f".git/{name}": b"x" for name in (*kept, *gone, "worktrees/w/config.worktree")})
    make(project, {"sub/.git": b"gitdir: ../.git/modules/a/b\n"})
    assert not any(".git" in name for name in rows(scanned(project)))
    by_path = rows(scanned(project, git=True))
    files = {name for name, row in by_path.items() if ".git" in name and row.kind == "f"}
    assert files == {f".git/{name}" for name in kept} | {"sub/.git"}


# --- an unchanged project is not read ---


def settle(project: Path) -> None:
    """Give every file an older ctime than the clock's present tick can give, as time does."""
    for path in project.rglob("*"):
        path.touch()
    until = os.stat(project / "a.py").st_ctime_ns + 40_000_000
    while time.time_ns() < until:
        tick()


def test_an_unchanged_file_is_not_opened_again(project: Path, opened: list[bytes]) -> None:
    settle(project)
    first = scanned(project)
    assert len(opened) == 4
    opened.clear()
    assert base_id(scanned(project).base) == base_id(first.base)
    assert opened == []
    info = (project / "a.py").stat()
    (project / "a.py").write_bytes(b"A\n")
    os.utime(project / "a.py", ns=(info.st_atime_ns, info.st_mtime_ns))  # the same size and time
    third = scanned(project)
    assert opened == [b"a.py"]
    assert rows(third)["a.py"].content == digest_of_content(b"A\n")


def test_a_file_of_the_present_tick_is_read_again(project: Path, opened: list[bytes]) -> None:
    scanned(project)
    opened.clear()
    (project / "a.py").write_bytes(b"x\n")
    scanned(project)
    scanned(project)
    assert opened.count(b"a.py") == 2


@pytest.mark.parametrize("damage", [b"", b"\x92", b"garbage", b"\x92\x02\x80", b"\x92\x01\x81\xc4\x00\x81"])
def test_a_damaged_cache_is_an_empty_one(project: Path, damage: bytes, opened: list[bytes]) -> None:
    settle(project)
    first = scanned(project)
    (project.parent / "digests").write_bytes(damage)
    opened.clear()
    assert scanned(project).base == first.base
    assert len(opened) == 4


def test_a_file_that_is_gone_leaves_the_cache(project: Path) -> None:
    settle(project)
    scanned(project)
    with_three = (project.parent / "digests").stat().st_size
    (project / "src/deep/c.py").unlink()
    scanned(project)
    assert (project.parent / "digests").stat().st_size < with_three


# --- edits meanwhile ---


def test_a_file_that_changes_while_it_is_read_is_read_again_or_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, times = os.read, [0]

    def read(descriptor: int, size: int) -> bytes:
        data = real(descriptor, size)
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(project / "a.py") and times[0]:
            times[0] -= 1
            with (project / "a.py").open("ab") as stream:
                stream.write(b"more\n")
            tick()
        return data

    monkeypatch.setattr(os, "read", read)
    times[0] = 1
    assert rows(scanned(project))["a.py"].content == digest_of_content(b"a\nmore\n")
    times[0] = 99
    with pytest.raises(MudroomError, match=r"a\.py changes while it is read"):
        scanned(project)


@pytest.mark.parametrize("other", ["link", "fifo", "directory", "gone", "link above", "hard link"])
def test_a_file_that_becomes_something_else_is_never_followed(
    project: Path, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An accomplice swaps a path between the listing and the reading: nothing outside the project is read."""
    secret = make(project.parent / "outside", {"b.py": TOKEN, "deep/c.py": TOKEN})
    path = project / "src/b.py"
    real: Callable[..., object] = choose_entries

    def choose(*arguments: object, **options: object) -> object:
        chosen = real(*arguments, **options)
        if other == "link above":
            (project / "src").rename(project / "moved")
            (project / "src").symlink_to(secret)
            return chosen
        path.unlink()
        if other == "link":
            path.symlink_to(secret / "b.py")
        elif other == "fifo":
            os.mkfifo(path)
        elif other == "directory":
            path.mkdir()
        elif other == "hard link":
            make(project, {".env": TOKEN})
            os.link(project / ".env", path)
        return chosen

    monkeypatch.setattr("mudroom.ext.fleet.base.scan.choose", choose)
    if other == "hard link":
        with pytest.raises(MudroomError, match=r"src/b\.py changes"):
            scanned(project)
        return
    found = scanned(project)
    assert TOKEN not in sent(found)
    assert "src/b.py" not in rows(found)


def replace_by_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def test_a_file_that_changes_before_it_is_sent_is_not_sent(project: Path) -> None:
    make(project, {"large": bytes(9 << 20)})
    found = scanned(project)
    digests = {os.fsdecode(file.path): digest for digest, file in found.files.items()}
    edits: dict[str, Callable[[Path], object]] = {
        "a.py": lambda path: path.write_bytes(b"b\n"),
        "src/b.py": replace_by_link,
        "src/deep/c.py": lambda path: path.unlink(),
        "large": lambda path: path.write_bytes(b"\1" * (9 << 20)),
    }
    for name, edit in edits.items():
        tick()
        edit(project / name)
        with ScannedObjects(found) as objects, pytest.raises(BaseChanged) as moved:
            list(packs([digests[name]], objects))
        assert moved.value.path == os.fsencode(name)


def test_a_worker_gets_only_what_is_in_the_base(project: Path) -> None:
    make(project, {".env": TOKEN})
    found = scanned(project)
    with ScannedObjects(found) as objects, pytest.raises(KeyError):
        list(packs([digest_of_content(TOKEN)], objects))


# --- bad input ---


def test_an_unreadable_file_is_left_out_and_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LastDirectory.open_file

    def closed(self: LastDirectory, path: bytes) -> int:
        if path == b"a.py":
            raise PermissionError(13, "Permission denied")  # root reads every file
        return real(self, path)

    monkeypatch.setattr(LastDirectory, "open_file", closed)
    found = scanned(project)
    assert "a.py" not in rows(found)
    assert found.base.excluded == (b"a.py",)
    assert "1 unreadable file is not sent: a.py" in found.notes


def test_a_tree_that_is_too_deep_is_refused_by_name(tmp_path: Path) -> None:
    deep = tmp_path / "p" / "/".join(["d"] * 300)
    deep.mkdir(parents=True)
    message = (
        f"{('d/' * 300)[:60]}… lies below more than 256 directories: such a tree cannot be sent "
        "(leave it out: copy.exclude in the policy)"
    )
    with pytest.raises(MudroomError, match=whole(message)):
        scanned(tmp_path / "p")


def test_an_empty_project_has_a_base(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    found = scanned(tmp_path / "p")
    assert (len(found.nodes), found.files, found.size) == (1, {}, 0)
