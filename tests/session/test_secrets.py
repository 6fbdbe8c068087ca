"""Secrets of the project are shown empty, to commands and to file tools; what is done to them is never applied."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, contents_below, full_listing
from mudroom.core.clock import CommandStart
from mudroom.core.settings import Settings
from mudroom.errors import SecretsUnknown, UsageError
from mudroom.policy.config import KEEPS_ALL
from mudroom.session import Session
from mudroom.stage.views.secret import Finder

pytestmark = pytest.mark.both_users

VIEWS = pytest.mark.parametrize("view", ["overlay", "copy"])


@pytest.fixture
def project(place: Place) -> Place:
    place.write(".env", "TOKEN=hunter2\n", 0o600)
    place.write("deploy/keys/server.pem", "-----BEGIN hunter2\n")
    place.write("deploy/readme", "r\n")
    place.write("node_modules/pkg/test.pem", "a package's own\n")
    place.write("file", "f\n")
    return place


def vault_holds(place: Place, text: bytes) -> list[str]:
    return [str(path) for path, data in contents_below(place.state) if text in data]


@VIEWS
def test_commands_see_them_empty(project: Place, view: str) -> None:
    session = project.session(Settings(view=view))  # type: ignore[arg-type]
    result = session.run(
        [b"sh", b"-c", b"cat .env deploy/keys/server.pem; stat -c %a .env; ls -A deploy/keys; cat node_modules/pkg/*"]
    )
    assert result.stdout == b"600\nserver.pem\na package's own\n"
    assert any("2 secrets are shown empty: .env, deploy/keys/server.pem" in note for note in result.notes)
    assert result.changeset.changes == ()
    assert vault_holds(project, b"hunter2") == []


@VIEWS
def test_what_is_done_to_them_is_left_out_and_said(project: Place, view: str) -> None:
    before = full_listing(project.project)
    session = project.session(Settings(view=view))  # type: ignore[arg-type]
    result = session.run([b"sh", b"-c", b"echo mine > .env; rm -rf deploy; echo x >> file"])
    assert {remark.path for remark in result.changeset.remarks} == {b".env", b"deploy/keys/server.pem"}
    landed = session.changes.apply(result.fork)
    assert landed.conflicts == ()
    after = full_listing(project.project)
    secrets = (".env", "deploy/keys/server.pem", "deploy/keys", "deploy")
    assert {name: after[name][3] for name in secrets} == {name: before[name][3] for name in secrets}
    assert not (project.project / "deploy/readme").exists()
    assert (project.project / "file").read_text() == "f\nx\n"
    assert vault_holds(project, b"hunter2") == []


def test_file_tools_see_the_same(project: Place) -> None:
    session = project.session()
    session.forks.new("f")
    files = session.forks.files("f")
    assert files.read(".env") == b""
    assert files.search("hunter2") == []
    files.write(".env", "mine")
    files.delete("deploy", recursive=True)
    assert {remark.path for remark in session.changes.of("f").remarks} == {b".env", b"deploy/keys/server.pem"}
    session.changes.apply("f")
    assert (project.project / ".env").read_text() == "TOKEN=hunter2\n"
    assert (project.project / "deploy/keys/server.pem").exists()
    assert vault_holds(project, b"hunter2") == []


def test_they_can_be_shown_and_others_masked(project: Place) -> None:
    project.write("plans.txt", "secret plans")
    session = project.session(Settings(secrets_show=(b".env",), secrets_mask=(b"*.doc",)))
    result = session.run([b"sh", b"-c", b"cat .env plans.txt; echo more >> .env"])
    assert result.stdout == b"TOKEN=hunter2\nsecret plans"
    session = project.session(Settings(secrets_show=(b".env",), secrets_mask=(b"plans*",)))
    result = session.run([b"sh", b"-c", b"cat .env plans.txt; echo more >> .env"])
    assert result.stdout == b"TOKEN=hunter2\n"
    session.changes.apply(result.fork)
    assert (project.project / ".env").read_text() == "TOKEN=hunter2\nmore\n"


def test_secrets_that_come_and_go_between_commands(project: Place) -> None:
    session = project.session()
    session.run([b"true"], fork="f")
    project.write("new.key", "k")
    (project.project / ".env").unlink()
    result = session.run([b"sh", b"-c", b"cat new.key; ls -A"], fork="f")
    assert result.stdout.split() == [b"deploy", b"file", b"new.key", b"node_modules"]
    assert result.changeset.changes == ()


def test_the_index_is_only_a_cache(project: Place, tmp_path: Path) -> None:
    index = os.fsencode(tmp_path / "index")
    root = os.fsencode(project.project)
    expected = ([b".env", b"deploy/keys/server.pem"], True)
    assert Finder(root, index).find(()) == expected
    for garbage in (b"", b"garbage", b"\xff" * 100):
        Path(os.fsdecode(index)).write_bytes(garbage)
        assert Finder(root, index).find(()) == expected
    os.symlink("/etc", project.project / "elsewhere")
    os.symlink("/etc/passwd", project.project / "link.pem")
    assert Finder(root, index).find(()) == expected
    project.write("late/.env", "x")
    assert Finder(root, index).find(())[0] == [b".env", b"deploy/keys/server.pem", b"late/.env"]


def test_what_changes_while_the_rest_is_looked_at_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the tick of the file system's clock in which it was listed: its time stays the same."""
    project, index, tick = tmp_path / "project", os.fsencode(tmp_path / "index"), 1_700_000_000_000_000_001
    project.mkdir()
    os.utime(project, ns=(tick, tick))
    now, look = [tick + 1], Finder._list
    monkeypatch.setattr(time, "time_ns", lambda: now[0])

    def slowly(self: Finder, *given: Any) -> Any:
        row = look(self, *given)
        now[0] += 10_000_000_000
        return row

    monkeypatch.setattr(Finder, "_list", slowly)
    assert Finder(os.fsencode(project), index).find(()) == ([], True)
    (project / ".env").write_text("KEY=1")
    os.utime(project, ns=(tick, tick))
    assert Finder(os.fsencode(project), index).find(()) == ([b".env"], True)


def test_agents_that_look_at_once_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    project, index = tmp_path / "project", os.fsencode(tmp_path / "index")
    project.mkdir()
    (project / ".env").write_text("KEY=1")
    os.utime(project, (5_000_000_000, 5_000_000_000))  # its time is never settled, so every look is written down
    found: list[object] = []

    def agent() -> None:
        found.extend(Finder(os.fsencode(project), index).find(()) for _ in range(100))

    agents = [threading.Thread(target=agent) for _ in range(4)]
    for one in agents:
        one.start()
    for one in agents:
        one.join()
    assert found == [([b".env"], True)] * 400
    assert sorted(os.listdir(tmp_path)) == ["index", "project"]


def test_a_secret_comes_with_the_time_of_its_directory_set_back(tmp_path: Path) -> None:
    """As ``rsync -a`` and ``tar -x`` do."""
    project, index = tmp_path / "project", os.fsencode(tmp_path / "index")
    (project / "sub").mkdir(parents=True)
    (project / "sub/a").write_text("x")
    os.utime(project / "sub", (10**9, 10**9))
    assert Finder(os.fsencode(project), index).find(()) == ([], True)
    (project / "sub/.env").write_text("k")
    os.utime(project / "sub", (10**9, 10**9))
    assert Finder(os.fsencode(project), index).find(()) == ([b"sub/.env"], True)


def test_a_path_of_the_policy_is_masked(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "sub/private").mkdir(parents=True)
    for name in ("a", "sub/a", "sub/private/k"):
        (project / name).write_text("x")
    finder = Finder(os.fsencode(project), os.fsencode(tmp_path / "index"), (b"sub/a", b"sub/private"))
    assert finder.find(()) == ([b"sub/a", b"sub/private/k"], True)


PATTERNS = (
    "prod-*.yaml", "*secret*", "config/*.key", "config/**/*.key", "/top.txt", "private/", "data?.bin", "[xy].cfg",
    "**/deep", "a/b/c", "*.sqlite", "id_*", "plain", "config/**", "dir/*/end", "\\*star",
)  # fmt: skip
"""Each of them hides the file of the same place in ``HIDDEN``."""
HIDDEN = (
    "k8s/prod-eu.yaml", "my-secret-1.txt", "config/a.key", "config/sub/b.key", "top.txt", "x/private/k", "data1.bin",
    "x.cfg", "sub/deep", "a/b/c", "db.sqlite", "keys/id_mine", "sub/plain", "config/other", "dir/any/end", "*star",
)  # fmt: skip


def test_every_pattern_of_gitignore_hides_its_file(place: Place) -> None:
    for path in HIDDEN:
        place.write(path, "hunter2\n")
    place.write("sub/top.txt", "open\n")
    for pattern, path in zip(PATTERNS, HIDDEN, strict=True):
        session = place.session(Settings(secrets_mask=(pattern.encode(),)))
        done = session.run([b"cat", path.encode(), b"sub/top.txt"])
        assert done.stdout == b"open\n", pattern


TOKEN = "//registry.example/:_authToken=hunter2-9471\n"
HARMLESS = "registry=https://registry.example/\n"


@VIEWS
def test_a_settings_file_is_empty_only_if_it_holds_a_token(project: Place, view: str) -> None:
    project.write(".npmrc", HARMLESS)
    session = project.session(Settings(view=view))  # type: ignore[arg-type]
    look = [b"sh", b"-c", b"cat .npmrc; echo added=1 >> .npmrc"]
    result = session.run(look, fork="a")
    assert result.stdout == HARMLESS.encode()
    assert [change.path for change in result.changeset.changes] == [b".npmrc"]
    assert not session.forks.secrets.hides(b".npmrc")
    with (project.project / ".npmrc").open("r+") as stream:  # in place
        stream.write(TOKEN)
    result = session.run(look, fork="b")
    assert result.stdout == b"" and result.changeset.changes == ()
    assert session.forks.secrets.hides(b".npmrc")
    assert session.run([b"cat", b".npmrc"], fork="a").stdout == b"", "a fork may have the token, too"
    assert project.session().forks.files("b").read(".npmrc") == b"added=1\n", "what it has written itself"


@VIEWS
def test_a_token_that_a_fork_was_shown_stays_hidden_when_the_project_has_none_any_more(
    project: Place, view: str
) -> None:
    project.write(".npmrc", TOKEN)
    shown = Settings(view=view, secrets_show=(b".npmrc",))  # type: ignore[arg-type]
    project.session(shown).run([b"sh", b"-c", b"echo added=1 >> .npmrc"], fork="a")
    project.write(".npmrc", HARMLESS)
    session = project.session(Settings(view=view))  # type: ignore[arg-type]
    if view == "overlay":
        assert b"hunter2" not in session.run([b"cat", b".npmrc"], fork="a").stdout
    else:
        with pytest.raises(UsageError, match=r"the snapshot of a holds \.npmrc, a secret"):
            session.run([b"cat", b".npmrc"], fork="a")
    assert session.forks.secrets.hides(b".npmrc")
    assert session.run([b"cat", b".npmrc"], fork="b").stdout == HARMLESS.encode()


@VIEWS
def test_other_names_and_what_links_lead_to_are_empty(project: Place, view: str) -> None:
    os.link(project.project / ".env", project.project / "deploy/notes.txt")
    project.write("conf/production", "hunter2\n")
    (project.project / "prod.env").symlink_to("conf/production")
    session = project.session(Settings(view=view))  # type: ignore[arg-type]
    result = session.run(
        [b"sh", b"-c", b"cat deploy/notes.txt conf/production prod.env; echo mine >> deploy/notes.txt"]
    )
    assert result.stdout == b"" and result.changeset.changes == ()
    assert session.forks.secrets.hides(b"deploy/notes.txt") and not session.forks.secrets.hides(b"deploy/readme")
    shown = project.session(Settings(view=view, secrets_show=(b"prod.env",)))  # type: ignore[arg-type]
    assert shown.run([b"cat", b"prod.env", b"deploy/notes.txt"]).stdout == b"hunter2\n"
    assert vault_holds(project, b"TOKEN=hunter2") == []


@VIEWS
def test_a_change_to_a_settings_file_is_flagged_by_its_content(project: Place, view: str) -> None:
    session = project.session(Settings(view=view))  # type: ignore[arg-type]
    script = f"printf '{TOKEN}' > .npmrc; printf '{HARMLESS}' > sub.npmrc; mkdir s; printf '{HARMLESS}' > s/.npmrc"
    changes = session.run([b"sh", b"-c", script.encode()]).changeset.changes
    assert {change.path: "secret" in change.flags for change in changes if change.entry.kind == "file"} == {
        b".npmrc": True, b"sub.npmrc": False, b"s/.npmrc": False,
    }  # fmt: skip


def killed(place: Place, script: str, settings: Settings) -> Session:
    """Return a session as it stands when mudroom was killed after a command had done this in the fork f."""
    session = place.session(settings)
    session.run([b"sh", b"-c", script.encode()], fork="f")
    fork = session.forks.vault.fork("f")
    os.unlink(fork.record_path)
    with fork.lock("a test"):
        fork.begin(CommandStart(time.time_ns() - 10**10))
    return session


def test_what_a_killed_command_did_to_a_secret_is_left_out(project: Place) -> None:
    project.write("own.txt", "hunter2\n")
    settings = Settings(secrets_mask=(b"own.txt",))
    killed(project, "echo x >> .env; touch deploy/keys/server.pem; echo x >> own.txt; echo g >> file", settings)
    later = project.session(settings)
    assert [row.changed for row in later.sandboxes.collect_cut_off()] == [1]
    assert [change.path for change in later.changes.of("f").changes] == [b"file"]
    with later.alone("a test"):
        later.changes.apply("f")
    assert (project.project / "own.txt").read_text() == "hunter2\n"


def test_what_a_killed_command_did_to_a_file_that_was_shown_to_it_is_kept(project: Place) -> None:
    shown = Settings(secrets_show=(b".env",))
    killed(project, "echo MORE=1 >> .env; echo x >> deploy/keys/server.pem", shown)
    later = project.session()
    assert len(later.sandboxes.collect_cut_off()) == 1
    assert [change.path for change in later.changes.of("f").changes] == [b".env"]
    with later.alone("a test"):
        later.changes.apply("f")
    assert (project.project / ".env").read_text() == "TOKEN=hunter2\nMORE=1\n"
    assert (project.project / "deploy/keys/server.pem").read_text() == "-----BEGIN hunter2\n"


def test_nothing_is_collected_while_the_policy_cannot_be_read(project: Place) -> None:
    project.write("own.txt", "hunter2\n")
    settings = Settings(secrets_mask=(b"own.txt",))
    killed(project, "echo x >> own.txt; echo g >> file", settings)
    unknowing = project.session(KEEPS_ALL)
    assert unknowing.sandboxes.collect_cut_off() == []
    assert unknowing.forks.known_record("f") is None
    for look in (unknowing.changes.of, unknowing.changes.review, unknowing.forks.files):
        with pytest.raises(SecretsUnknown, match="names secrets, cannot be read"):
            look("f")
    with pytest.raises(SecretsUnknown):
        unknowing.forks.secrets.hides(b"own.txt")
    assert [change.path for change in project.session(settings).changes.of("f").changes] == [b"file"]
    killed(project, "echo x >> own.txt", settings)
    project.session(KEEPS_ALL).forks.discard("f")
    assert project.session(Settings(secrets_mask=(b"/",))).forks.secrets.look()[0].paths
