"""Secrets that no archive holds: shown ones, those of earlier versions, emptied files in commits."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

import test_git_secrets
from archived import archived
from conftest import Place
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.ext.transfer.archives import export, export_file, import_stream
from mudroom.vault.record import ForkRecord, load, save
from test_shown_secrets import SHOWN_ENV, VIEWS, make_old, project, run, shown_in  # noqa: F401 - a fixture

pytestmark = pytest.mark.both_users


@VIEWS
@pytest.mark.parametrize("settings", [Settings(), SHOWN_ENV])
def test_an_export_holds_neither_it_nor_its_original(project: Place, view: str, settings: Settings) -> None:  # noqa: F811
    run(project, b"echo more >> .env; echo x >> file", shown_in(view))
    session = project.session(settings)
    session.forks.checkpoint("f", "p")
    data = archived(session, "f")
    assert b"hunter2" not in data
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = tar.getnames()
    assert any(name.endswith("tree/file") for name in names)
    arrived = import_stream(session, io.BytesIO(data), "g")
    assert arrived.error is None
    assert [change.path for change in session.changes.of("g").changes] == [b"file"]


@pytest.mark.parametrize("sealed", [False, True])
def test_an_export_of_a_fork_of_an_earlier_version(project: Place, sealed: bool) -> None:  # noqa: F811
    run(project, b"echo more >> .env", SHOWN_ENV)
    session = project.session()
    if sealed:
        session.forks.checkpoint("f", "p")
    make_old(session, "f")
    assert b"hunter2" not in archived(session, "f")


@VIEWS
def test_a_settings_file_leaves_only_without_a_token(place: Place, view: str) -> None:
    place.write(".npmrc", "registry=https://registry.example/\n")
    place.write("sub/.npmrc", "//registry.example/:_authToken=hunter2-9471\n")
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    session.run([b"sh", b"-c", b"echo more=1 >> .npmrc; echo x > sub/file; echo y >> sub/.npmrc"], fork="f")
    data = archived(session, "f")
    assert b"hunter2" not in data and b"more=1" in data


def test_what_was_left_out_of_an_archive_is_told(project: Place) -> None:  # noqa: F811
    run(project, b"echo more >> .env", SHOWN_ENV)
    run(project, b"echo mine > .env")
    remarks = export(project.session(), "f", io.BytesIO()).remarks
    assert remarks == (".env: a secret of the project is left out",)


def test_an_emptied_secret_is_not_exported(place: Place, tmp_path: Path) -> None:
    """The archive would bring the emptied file to another machine."""
    place.write(".env", "S\n")
    test_git_secrets.git(place.project, "git init -q")
    session, result = place.sh("git add -f .env; git -c user.name=T -c user.email=t@example.org commit -qm emptied")
    assert result.exit_code == 0, result.stderr
    target = tmp_path / "archive"
    with pytest.raises(UsageError, match=r"\.env is masked"):
        export_file(session, result.fork, os.fsencode(target))
    assert not target.exists()


def test_an_export_has_no_secret_of_an_older_record(place: Place) -> None:
    """Earlier versions wrote the command whole, also into the records of layers."""
    session = place.session()
    session.run([b"touch", b"a"], fork="f")
    session.forks.checkpoint("f", "sealed")
    session.run([b"touch", b"b"], fork="f")
    paths = [path for path in place.state.rglob("record") if path.is_file()]
    assert len(paths) == 2
    for path in paths:
        whole = load(os.fsencode(path), ForkRecord)
        save(os.fsencode(path), whole._replace(command=(b"tool", b"--password", b"Kx7wQmPz19rtPH")), durable=False)
    packed = archived(session, "f")
    assert b"Kx7wQmPz19rtPH" not in packed
    assert packed.count(b"--password") == 2
