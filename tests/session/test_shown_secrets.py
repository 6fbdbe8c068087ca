"""A secret that is shown to one command is shown to no other, whatever the fork holds of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from background_command import heard
from conftest import Place
from mudroom.core.clock import CommandStart
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.session import Session
from mudroom.session.background import Background
from mudroom.stage.originals.collection import MASKED_BESIDE
from mudroom.vault.store.fork import SHOWN, Fork
from mudroom.vault.store.masked_secrets import MASKED

pytestmark = pytest.mark.both_users

VIEWS = pytest.mark.parametrize("view", ["overlay", "copy"])
SHOWN_ENV = Settings(secrets_show=(b".env",))
TOUCHES = pytest.mark.parametrize(
    "deed",
    [
        b"touch .env", b"chmod 640 .env", b"echo more >> .env", b"cp -p .env /tmp/e; rm .env; cp -p /tmp/e .env",
        b"cp .env /tmp/e; mv /tmp/e .env", b"rm -rf conf; mkdir conf; cp .env conf/.env; echo more >> .env",
    ],
)  # fmt: skip


@pytest.fixture
def project(place: Place) -> Place:
    place.write(".env", "TOKEN=hunter2\n", 0o600)
    place.write("conf/.env", "TOKEN=hunter2\n")
    place.write("conf/readme", "r\n")
    place.write("file", "f\n")
    return place


def shown_in(view: str) -> Settings:
    return Settings(secrets_show=(b".env",), view=view)  # type: ignore[arg-type]


def plain_in(view: str) -> Settings:
    return Settings(view=view)  # type: ignore[arg-type]


def run(place: Place, script: bytes, settings: Settings = Settings(), fork: str = "f") -> bytes:  # noqa: B008
    session = place.session(settings)
    try:
        return session.run([b"sh", b"-c", script], fork=fork).stdout
    finally:
        session.close()


def read(place: Place, fork: str = "f", view: str = "overlay") -> bytes:
    """Return what a command without the permission reads."""
    return run(place, b"cat .env conf/.env; grep -rs hunter2 . | head -1", plain_in(view), fork)


def layer_files(fork: Fork) -> list[Path]:
    """Return the files in the trees of a fork's layers that hold the secret."""
    trees = [Path(os.fsdecode(fork.layer(name) + b"/tree")) for name in fork.state.own_layers]
    return [path for tree in trees for path in tree.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]


@VIEWS
@TOUCHES
def test_a_later_command_sees_it_empty(project: Place, view: str, deed: bytes) -> None:
    both = shown_in(view)
    assert b"hunter2" in run(project, b"cat .env;" + deed, both)
    assert read(project, view=view) == b""
    assert run(project, b"stat -c %s .env; ls -A | grep -c env", plain_in(view)) == b"0\n1\n"
    assert b"hunter2" in run(project, b"cat .env", both)


@TOUCHES
def test_no_layer_of_the_stack_holds_it(project: Place, deed: bytes) -> None:
    run(project, deed, SHOWN_ENV)
    assert layer_files(project.session().vault.fork("f")) == []


@VIEWS
def test_a_later_command_goes_on_with_what_the_first_has_written(project: Place, view: str) -> None:
    both = shown_in(view)
    run(project, b"echo more >> .env", both)
    run(project, b"true", plain_in(view))
    assert run(project, b"cat .env", both) == b"TOKEN=hunter2\nmore\n"


@VIEWS
@pytest.mark.parametrize("between", [b"true", b"echo mine > .env", b"rm .env", b"rm -rf conf", b"echo x >> file"])
def test_the_change_of_the_first_lands_whatever_others_did(project: Place, view: str, between: bytes) -> None:
    run(project, b"echo more >> .env; chmod 640 .env", shown_in(view))
    run(project, between, plain_in(view))
    session = project.session()
    assert b".env" in [change.path for change in session.changes.of("f").changes]
    session.changes.apply("f", [b".env"])
    assert (project.project / ".env").read_text() == "TOKEN=hunter2\nmore\n"
    assert (project.project / ".env").stat().st_mode & 0o777 == 0o640
    assert (project.project / "conf/.env").read_text() == "TOKEN=hunter2\n"


@VIEWS
@pytest.mark.parametrize("first", [b"", b"touch .env"])
@pytest.mark.parametrize("between", [b"cat .env", b"echo x >> file"])
def test_a_command_after_one_that_saw_it_empty_is_shown_it(
    project: Place, view: str, first: bytes, between: bytes
) -> None:
    """Its change is told, and lands: the empty file of the one before is none that anybody has made."""
    if first or view == "copy":  # whose snapshot would lack it
        run(project, first or b"true", shown_in(view))
    run(project, between, plain_in(view))
    session = project.session(shown_in(view))
    result = session.run([b"sh", b"-c", b"cat .env; echo more >> .env"], fork="f")
    assert result.stdout == b"TOKEN=hunter2\n"
    verbs = {change.path: change.verb for change in result.changeset.changes}
    assert verbs[b".env"] == "modified"
    session.close()
    assert read(project, view=view) == b""
    session = project.session(plain_in(view))
    assert {change.path: change.verb for change in session.changes.of("f").changes} == verbs
    session.changes.apply("f")
    assert (project.project / ".env").read_text() == "TOKEN=hunter2\nmore\n"


@pytest.mark.parametrize("gone", ["by the user", "by an apply"])
def test_a_secret_of_the_snapshot_that_the_project_has_no_longer(project: Place, gone: str) -> None:
    run(project, b"rm .env" if gone == "by an apply" else b"true", shown_in("copy"))
    if gone == "by an apply":
        project.session().changes.apply("f")
        run(project, b"touch .env; rm .env", shown_in("copy"))
    else:
        (project.project / ".env").unlink()
    session = project.session(plain_in("copy"))
    for read_it in (lambda: session.run([b"cat", b".env"], fork="f"), lambda: session.forks.files("f").read(b".env")):
        with pytest.raises(UsageError) as refused:
            read_it()
        assert refused.value.message == "the snapshot of f holds .env, a secret that the project has no longer"
        assert refused.value.hint == "--show .env lets a command read it; a new fork has none"
    assert run(project, b"echo yes", shown_in("copy")) == b"yes\n"


def test_a_snapshot_for_one_that_was_not_shown_it_lacks_it(project: Place) -> None:
    run(project, b"true", plain_in("copy"))
    session = project.session(shown_in("copy"))
    result = session.run([b"sh", b"-c", b"cat .env; echo more >> .env"], fork="f")
    assert result.stdout == b""
    assert ".env is not in the snapshot of f, so it cannot be shown: a new fork has it" in result.notes
    assert [conflict.path for conflict in session.changes.apply("f").applied.conflicts] == [b".env"]
    assert (project.project / ".env").read_text() == "TOKEN=hunter2\n"


@VIEWS
def test_a_deletion_by_the_first_lands(project: Place, view: str) -> None:
    run(project, b"rm -rf .env conf", shown_in(view))
    assert run(project, b"ls -A .env", plain_in(view)) == b".env\n"
    session = project.session()
    session.changes.apply("f")
    assert not (project.project / ".env").exists()
    assert not (project.project / "conf").exists()


@VIEWS
def test_a_deletion_after_a_change_lands(project: Place, view: str) -> None:
    run(project, b"touch .env", shown_in(view))
    run(project, b"rm .env", shown_in(view))
    assert run(project, b"ls -A .env", plain_in(view)) == b".env\n"
    project.session().changes.apply("f")
    assert not (project.project / ".env").exists()


@VIEWS
def test_a_directory_that_is_made_again_keeps_what_is_in_it(project: Place, view: str) -> None:
    run(project, b"rm -r conf; mkdir conf; echo TOKEN=hunter3 > conf/.env", shown_in(view))
    run(project, b"true", plain_in(view))
    session = project.session()
    assert {change.path: change.verb for change in session.changes.of("f").changes}[b"conf/.env"] == "modified"
    session.changes.apply("f")
    assert (project.project / "conf/.env").read_text() == "TOKEN=hunter3\n"


@VIEWS
@pytest.mark.parametrize("between", [b"touch .env", b"chmod 640 .env", b"echo own > .env", b"rm .env"])
def test_it_goes_on_with_the_file_of_the_project_not_with_that_of_others(
    project: Place, view: str, between: bytes
) -> None:
    """Otherwise an apply would empty the project's file, because a command saw it empty."""
    run(project, b"true", shown_in(view))
    run(project, between, plain_in(view))
    assert run(project, b"cat .env; echo more >> .env", shown_in(view)) == b"TOKEN=hunter2\n"
    assert read(project, view=view) == (b"own\n" if b"own" in between else b"")
    project.session().changes.apply("f")
    assert (project.project / ".env").read_text() == "TOKEN=hunter2\nmore\n"


@VIEWS
def test_it_is_shown_where_others_have_removed_the_directory_above(project: Place, view: str) -> None:
    run(project, b"echo more >> conf/.env", shown_in(view))
    run(project, b"rm -r conf", plain_in(view))
    assert run(project, b"cat conf/.env; echo again >> conf/.env", shown_in(view)) == b"TOKEN=hunter2\nmore\n"
    assert run(project, b"ls -A conf/.env", plain_in(view)) == b""
    project.session().changes.apply("f")
    assert (project.project / "conf/.env").read_text() == "TOKEN=hunter2\nmore\nagain\n"


@VIEWS
def test_its_change_lands_if_others_have_removed_the_directory_above(project: Place, view: str) -> None:
    run(project, b"echo more >> conf/.env", shown_in(view))
    run(project, b"rm -r conf", plain_in(view))
    project.session().changes.apply("f")
    assert (project.project / "conf/.env").read_text() == "TOKEN=hunter2\nmore\n"
    assert not (project.project / "conf/readme").exists()


@pytest.mark.parametrize("deed", [b"echo more >> .env", b"rm .env", b"chmod 640 .env"])
@pytest.mark.parametrize("before", [b"chmod 604 .env", b"true"])
def test_another_copy_is_made_with_its_last_change(project: Place, deed: bytes, before: bytes) -> None:
    """The fork has an earlier version of it already."""
    both = Settings(secrets_show=(b".env", b"*.pem"), view="copy")
    project.write("a.pem", "hunter2\n")
    run(project, b"touch .env", both)
    run(project, before, plain_in("copy"))
    run(project, deed, both)
    session = project.session()
    changes = [(change.path, change.verb) for change in session.changes.of("f").changes]
    run(project, b"true", shown_in("copy"))
    session.forks.checkpoint("f", "p")
    assert [(change.path, change.verb) for change in session.changes.of("f").changes] == changes != []
    assert layer_files(session.vault.fork("f")) == []


def test_file_tools_of_a_session_without_it_where_a_copy_is_left(project: Place) -> None:
    run(project, b"true", shown_in("copy"))
    session = project.session()
    session.forks.files("f").write("file", "by tools\n")
    session.close()
    assert run(project, b"cat file .env", plain_in("copy")) == b"by tools\n"


@VIEWS
def test_a_deletion_by_another_does_not_become_one_of_the_first(project: Place, view: str) -> None:
    run(project, b"rm -rf conf", plain_in(view))
    run(project, b"mkdir conf; echo x > conf/other", shown_in(view))
    run(project, b"true", plain_in(view))
    project.session().changes.apply("f")
    assert (project.project / "conf/.env").read_text() == "TOKEN=hunter2\n"


@VIEWS
def test_a_file_that_others_have_written_stays_theirs(project: Place, view: str) -> None:
    plain = plain_in(view)
    run(project, b"echo mine > .env", plain)
    assert run(project, b"cat .env", plain) == b"mine\n"
    run(project, b"cat .env > /dev/null", shown_in(view))
    assert run(project, b"cat .env", plain) == b"mine\n"
    session = project.session()
    session.forks.checkpoint("f", "p")
    run(project, b"echo yours > .env", plain)
    session.forks.rollback("f", "p")
    assert run(project, b"cat .env", plain) == b"mine\n"
    session.changes.apply("f")
    assert (project.project / ".env").read_text() == "TOKEN=hunter2\n"


def test_neither_forks_nor_checkpoints_show_it(project: Place) -> None:
    session = project.session()
    run(project, b"echo more >> .env", SHOWN_ENV)
    session.forks.checkpoint("f", "p")
    run(project, b"echo again >> .env; echo x >> file", SHOWN_ENV)
    session.forks.new("present", parent="f")
    session.forks.new("then", parent="f", at="p")
    assert [read(project, fork) for fork in ("present", "then", "f")] == [b"", b"", b""]
    assert run(project, b"cat .env", SHOWN_ENV, "then") == b"TOKEN=hunter2\nmore\n"
    session.forks.rollback("f", "p")
    assert read(project) == b""
    assert run(project, b"cat .env", SHOWN_ENV) == b"TOKEN=hunter2\nmore\n"
    assert [change.path for change in project.session().changes.of("then").changes] == [b".env"]


def test_a_checkpoint_of_a_secret_alone_is_one(project: Place) -> None:
    session = project.session()
    session.forks.new("f")
    session.forks.checkpoint("f", "clean")
    run(project, b"echo more >> .env", SHOWN_ENV)
    session.forks.rollback("f", "clean")
    assert project.session().changes.of("f").changes == ()
    assert run(project, b"cat .env", SHOWN_ENV) == b"TOKEN=hunter2\n"


def test_merged_layers_keep_it_apart(project: Place) -> None:
    session = project.session()
    run(project, b"echo more >> .env", SHOWN_ENV)
    for number in range(30):
        run(project, b"echo %d >> file" % number)
        session.forks.checkpoint("f", f"p{number}")
    assert len(session.vault.fork("f").state.layers) < 30
    assert read(project) == b""
    assert run(project, b"cat .env", SHOWN_ENV) == b"TOKEN=hunter2\nmore\n"
    assert b".env" in [change.path for change in project.session().changes.of("f").changes]


def test_many_are_shown(project: Place) -> None:
    """Looking for them costs as much as the fork has changed, not as many as there are."""
    for number in range(40):
        project.write(f"keys/{number}/a.pem", f"hunter2 {number}\n")
    settings = Settings(secrets_show=(b"*.pem",))
    run(project, b"touch keys/3/a.pem; rm -r keys/4; rm keys/5/a.pem; rm -r keys/6; mkdir keys/6", settings)
    assert run(project, b"cat keys/*/a.pem") == b""
    assert run(project, b"ls keys/4 keys/5 keys/6 2>/dev/null") == b"keys/5:\na.pem\n\nkeys/6:\n"
    assert run(project, b"cat keys/*/a.pem | wc -l", settings) == b"37\n"
    deleted = [change.path for change in project.session().changes.of("f").changes if change.staged is None]
    assert {b"keys/4/a.pem", b"keys/5/a.pem", b"keys/6/a.pem"} <= set(deleted)


def test_one_of_two_is_shown(project: Place) -> None:
    both = Settings(secrets_show=(b".env", b"*.pem"))
    project.write("a.pem", "PEM hunter2\n")
    run(project, b"echo 1 >> .env; echo 2 >> a.pem", both)
    assert run(project, b"cat .env a.pem", SHOWN_ENV) == b"TOKEN=hunter2\n1\n"
    assert run(project, b"cat .env a.pem", both) == b"TOKEN=hunter2\n1\nPEM hunter2\n2\n"
    assert run(project, b"cat .env a.pem") == b""


def make_old(session: Session, name: str) -> None:
    """Make the fork one of an earlier version: its layers hold the secret."""
    fork = session.vault.fork(name)
    (Path(os.fsdecode(fork.path + MASKED))).write_bytes(b".env")
    for layer in fork.state.own_layers:
        shown = Path(os.fsdecode(session.vault.path + SHOWN + layer.encode()))
        if shown.is_dir():
            for path in (shown / "tree").rglob(".env"):
                target = Path(os.fsdecode(fork.layer(layer))) / "tree" / path.relative_to(shown / "tree")
                target.parent.mkdir(exist_ok=True)
                path.rename(target)
            os.rename(shown, shown.with_name("was.old"))


@pytest.mark.parametrize("sealed", [False, True])
def test_a_fork_of_an_earlier_version(project: Place, sealed: bool) -> None:
    run(project, b"echo more >> .env; echo y >> conf/.env", SHOWN_ENV)
    session = project.session()
    if sealed:
        session.forks.checkpoint("f", "p")
    make_old(session, "f")
    assert layer_files(session.vault.fork("f"))
    assert session.forks.files("f").read(".env") == b""
    session.close()
    assert read(project) == b""
    assert run(project, b"cat .env", SHOWN_ENV) == b"TOKEN=hunter2\nmore\n"
    session = project.session()
    assert sealed or layer_files(session.vault.fork("f")) == []
    if sealed:
        session.forks.rollback("f", "p")
        session.forks.new("g", parent="f", at="p")
        assert (read(project), read(project, "g")) == (b"", b"")
    changes = {change.path: change for change in project.session().changes.of("f").changes}
    assert {b".env", b"conf/.env"} <= changes.keys()


def test_a_pattern_that_comes_later(project: Place) -> None:
    project.write("plans.txt", "hunter2\n")
    run(project, b"echo more >> plans.txt")
    later = Settings(secrets_mask=(b"plans.txt",))
    assert run(project, b"cat plans.txt", later) == b""
    session = project.session(later)
    assert session.forks.files("f").read("plans.txt") == b""
    session.forks.new("g", parent="f")
    assert run(project, b"cat plans.txt", later, "g") == b""


def test_a_killed_command_that_had_it(project: Place) -> None:
    session = project.session(SHOWN_ENV)
    session.run([b"sh", b"-c", b"echo more >> .env"], fork="f")
    fork = session.vault.fork("f")
    make_old(session, "f")
    fork.begin(CommandStart(1))
    session.close()
    assert read(project) == b""
    assert [change.path for change in project.session().changes.of("f").changes] == [b".env"]


@pytest.mark.parametrize("deed", [b"rm .env", b": > .env", b"rm .env; mkdir .env", b"echo more > .env"])
def test_what_a_killed_command_did_to_it_stays(project: Place, deed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("mudroom.session.own_sandbox.gather", killed)
        with pytest.raises(ZeroDivisionError):
            run(project, deed, SHOWN_ENV)
    assert read(project) == b""
    run(project, b"touch .env")
    assert b".env" in [change.path for change in project.session().changes.of("f").changes]


def test_file_tools_of_a_session_without_it(project: Place) -> None:
    run(project, b"echo more >> .env", SHOWN_ENV)
    session = project.session()
    files = session.forks.files("f")
    assert (files.read(".env"), files.search("hunter2")) == (b"", [])


def test_file_tools_of_a_session_with_it(project: Place) -> None:
    session = project.session(SHOWN_ENV)
    session.forks.new("f")
    session.forks.files("f").write(".env", "TOKEN=hunter2 by tools\n")
    session.close()
    assert read(project) == b""
    session = project.session(SHOWN_ENV)
    assert session.forks.files("f").read(".env") == b"TOKEN=hunter2 by tools\n"
    session.changes.apply("f")
    assert (project.project / ".env").read_text() == "TOKEN=hunter2 by tools\n"


def test_a_fork_that_stands(project: Place) -> None:
    """Commands of one session, for which the overlays stay mounted (decision 41)."""
    session = project.session()
    for _time in range(4):
        session.run([b"true"], fork="f")
    shown = session.actor._replace(settings=session.actor.settings._replace(secrets_show=(b".env",)))
    order = [b"sh", b"-c", b"cat .env; echo more >> .env"]
    for _time in range(5):
        assert b"hunter2" in session.run(order, fork="f", actor=shown).stdout
        assert session.run([b"cat", b".env", b"conf/.env"], fork="f").stdout == b""
    assert session.run([b"cat", b".env"], fork="f", actor=shown).stdout.count(b"more") == 5


def started(session: Session, script: bytes, settings: Settings) -> Background:
    actor = session.actor._replace(settings=settings)
    background = session.start([b"sh", b"-c", script], fork="f", actor=actor)
    heard(background, b"up")
    return background


def refused(session: Session, settings: Settings) -> str:
    with pytest.raises(MudroomError) as caught:
        session.run([b"cat", b".env"], fork="f", actor=session.actor._replace(settings=settings))
    return caught.value.message


LASTS = b"echo more >> .env; exec 3< .env; echo up; while :; do sleep 0.02; done"


def test_no_command_joins_one_with_another_permission(project: Place) -> None:
    session = project.session()
    background = started(session, LASTS, SHOWN_ENV)
    assert ".env is a secret that the commands in the background can read" in refused(session, Settings())
    files = session.forks.files("f")
    with pytest.raises(UsageError, match="was shown a secret that file tools may not read"):
        files.read(".env")
    session.forks.checkpoint("f", "p")
    session.forks.new("g", parent="f", at="p")
    assert read(project, "g") == b""
    assert run(project, b"cat .env", SHOWN_ENV, "g") == b"TOKEN=hunter2\nmore\n"
    background.end()
    session.sandboxes.end("f")
    assert files.read(".env") == b""
    assert read(project) == b""
    started(session, b"echo up; sleep 1000", Settings())
    assert ".env is a secret that the commands in the background see empty" in refused(session, SHOWN_ENV)
    session.sandboxes.end("f")
    assert layer_files(session.vault.fork("f")) == []


def test_a_mounted_fork(project: Place) -> None:
    run(project, b"echo more >> .env", SHOWN_ENV)
    session = project.session()
    note = session.forks.mount("f")
    try:
        assert (Path(os.fsdecode(note.place)) / ".env").read_text() == ""
        result = session.run([b"cat", b".env"], fork="f", actor=session.actor._replace(settings=SHOWN_ENV))
        assert (result.stdout, any("shown empty where f is mounted" in note for note in result.notes)) == (b"", True)
    finally:
        session.forks.unmount("f")
    assert [change.path for change in session.changes.of("f").changes] == [b".env"]


def test_what_verifies_an_apply_does_not_see_it(project: Place) -> None:
    check = Settings(verify=(b"sh", b"-c", b"! grep -r hunter2 ."), verify_when="always")
    run(project, b"echo more >> .env; echo x >> file", SHOWN_ENV)
    landed = project.session(check).changes.apply("f")
    assert landed.verified is not None and landed.verified.passed
    assert (project.project / ".env").read_text() == "TOKEN=hunter2\nmore\n"


def test_what_was_left_out_is_told(project: Place) -> None:
    run(project, b"echo more >> .env", SHOWN_ENV)
    run(project, b"echo mine > .env")
    session = project.session()
    changes = session.changes.of("f")
    assert [change.path for change in changes.changes] == [b".env"]
    assert {remark.path: remark.text for remark in changes.remarks}[b".env"] == MASKED_BESIDE


def test_two_states_are_compared(project: Place) -> None:
    session = project.session(SHOWN_ENV)
    run(project, b"echo more >> .env", SHOWN_ENV)
    session.forks.checkpoint("f", "p")
    run(project, b"echo again >> .env", SHOWN_ENV)
    with session.forks.compare("f@p", "f") as comparison:
        (change,) = comparison.changeset.changes
        assert (change.path, change.lines_added, change.lines_removed) == (b".env", 1, 0)


def test_the_original_is_known_when_both_sides_edit(project: Place) -> None:
    project.write(".env", "a\nb\nc\nd\ne\nf\n")
    run(project, b"echo g >> .env", SHOWN_ENV)
    run(project, b"true")
    project.write(".env", "A\nb\nc\nd\ne\nf\n")
    project.session().changes.apply("f")
    assert (project.project / ".env").read_text() == "A\nb\nc\nd\ne\nf\ng\n"


def test_the_fork_goes_on_after_it_has_landed(project: Place) -> None:
    run(project, b"echo more >> .env; echo x >> file", SHOWN_ENV)
    session = project.session()
    session.changes.apply("f", [b".env"])
    assert [change.path for change in project.session().changes.of("f").changes] == [b"file"]
    run(project, b"true")
    assert [change.path for change in project.session().changes.of("f").changes] == [b"file"]
    run(project, b"echo again >> .env", SHOWN_ENV)
    project.session().changes.apply("f")
    assert (project.project / ".env").read_text() == "TOKEN=hunter2\nmore\nagain\n"


def test_a_file_that_the_fork_made_becomes_a_secret(project: Place) -> None:
    """The user makes a file of that name, and from then on it is masked, whatever the fork has there."""
    run(project, b"echo mine > new.pem")
    assert run(project, b"cat new.pem") == b"mine\n"
    project.write("new.pem", "hunter2\n")
    assert run(project, b"cat new.pem") == b""
    run(project, b"echo other > new.pem")
    assert run(project, b"cat new.pem") == b"other\n"


def test_an_agent_with_another_role(project: Place) -> None:
    session = project.session()
    role = session.actor._replace(settings=SHOWN_ENV, agent="deployer")
    assert session.run([b"sh", b"-c", b"cat .env; touch .env"], fork="f", actor=role).stdout == b"TOKEN=hunter2\n"
    other = session.actor._replace(agent="coder")
    assert session.run([b"cat", b".env"], fork="f", actor=other).stdout == b""
    assert session.forks.files("f").read(".env") == b""


def test_the_state_of_the_fork_is_nowhere_in_the_view(project: Place) -> None:
    run(project, b"echo more >> .env", SHOWN_ENV)
    state = os.fsencode(project.state)
    assert run(project, b"cat " + state + b"/vaults/*/shown/*/tree/.env; ls " + state + b" 2>/dev/null") == b""
    aliases = b"ln .env a; cat a; mv .env b; cat b; ls -A ..; cat /proc/*/root/.env 2>/dev/null"
    assert run(project, aliases) == b"home\nproject\n"
