"""New projects: choosing a folder, and the cost of staging it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from msgspec import Struct

from mudroom.core.tree.path import show_path
from mudroom.errors import UsageError
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint, id_of, path_of
from mudroom.ext.web.api.project import badge_of
from mudroom.ext.web.cli import new_project
from mudroom.ext.web.state.refusal import Refusal
from mudroom.ext.web.state.server_state import ServerEnvironment, ServerState
from mudroom.stage import disk

_SHOWN = 50
"""Excluded paths and secrets listed."""


class FoldersQuery(Struct):
    at: str = ""
    """A folder's id; empty: the roots."""


def folders(call: ApiCall) -> shape.FoldersShape:
    query: FoldersQuery = call.query
    environment, ids = call.server.environment, _project_ids(call.server)
    if not query.at:
        roots = [new_project.inspect_folder(root, root, None) for root in environment.roots]
        return shape.FoldersShape(None, None, [_folder(root, ids) for root in roots])
    path = path_of(query.at)
    with _open_folder(call.server, path) as (root, descriptor):
        name = os.path.basename(path)
        described = new_project.describe_folder(path, name or path, descriptor)
        listing = new_project.list_folders(path, descriptor)
    above = "" if path == root else id_of(os.path.dirname(path))
    rows = [_folder(row, ids) for row in listing.folders]
    refused = new_project.why_no_project(path, environment.home, environment.state)
    return shape.FoldersShape(_folder(described, ids), above, rows, refused, listing.more)


def _folder(folder: new_project.Folder, ids: dict[bytes, str]) -> shape.FolderShape:
    vault = ids.get(folder.path, "")
    name, path = show_path(folder.name), show_path(folder.path)
    return shape.FolderShape(id_of(folder.path), path, name, folder.is_project, vault, folder.problem)


def _project_ids(server: ServerState) -> dict[bytes, str]:
    """Return the ids of projects that have a vault, by path."""
    ids = {}
    for vault in server.vaults():
        with closing(vault):
            if vault.project:
                ids[vault.project] = os.path.basename(vault.path).decode()
    return ids


@contextmanager
def _open_folder(server: ServerState, path: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the root and a descriptor for a folder. Raise Refusal."""
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(new_project.open_folder(server.environment.roots, path))
        except UsageError as error:
            raise Refusal(403, "forbidden", error.message, error.hint) from None
        except OSError as error:
            words = error.strerror or str(error)
            raise Refusal(404, "not-found", f"{show_path(path)} cannot be opened: {words.lower()}") from None
        yield opened


def measure(call: ApiCall) -> shape.MeasureShape:
    request: shape.OpenRequestShape = call.body
    path, environment = path_of(request.id), call.server.environment
    with _open_folder(call.server, path) as (_root, descriptor):
        _require_possible(path, environment)
        outlook = environment.outlook(path)
        measured = new_project.measure(descriptor, outlook.settings)
    limit = outlook.settings.copy_limit
    notes = [*outlook.notes]
    if measured.unread:
        notes.append(f"{measured.unread:,} directories cannot be read, and are not counted")
    return shape.MeasureShape(
        measured.files,
        measured.size,
        measured.complete,
        [_remark(path, words) for path, words in measured.excluded[:_SHOWN]],
        limit,
        outlook.view,
        badge_of(outlook.level),
        [show_path(path) for path in measured.secrets[:_SHOWN]],
        notes,
        measured.copied,
        len(measured.excluded),
        len(measured.secrets),
    )


def _require_possible(path: bytes, environment: ServerEnvironment) -> None:
    """Raise Refusal if a folder cannot be a project."""
    refused = new_project.why_no_project(path, environment.home, environment.state)
    if refused:
        raise Refusal(409, "failed", refused)


def _remark(path: bytes, words: str) -> shape.RemarkShape:
    return shape.RemarkShape(id_of(path), show_path(path), words)


def make_project(call: ApiCall) -> shape.ProjectRowShape:
    """Make a folder a project, unless another folder has taken its place since it was shown."""
    request: shape.OpenRequestShape = call.body
    path, environment = path_of(request.id), call.server.environment
    with _open_folder(call.server, path) as (_root, descriptor):
        _require_possible(path, environment)
        if disk.real_path(path) != path:
            raise Refusal(409, "moved", f"{show_path(path)} was moved")
        session, notes = environment.open(path)
        with session:
            if session.project != path or not new_project.is_same(descriptor, session.project):
                raise Refusal(409, "moved", f"{show_path(path)} is another folder now", "look again")
            forks = len(session.vault.forks())
            name = os.path.basename(session.vault.path).decode()
    return shape.ProjectRowShape(name, show_path(path), True, forks, 0, 0, 0, list(notes))


ENDPOINTS = (
    Endpoint("GET", "/folders", "Folders that may become a project", folders, shape.FoldersShape, query=FoldersQuery),
    Endpoint(
        "POST",
        "/folders/measure",
        "The cost of staging a folder",
        measure,
        shape.MeasureShape,
        shape.OpenRequestShape,
    ),
    Endpoint(
        "POST",
        "/projects",
        "Make a folder a project",
        make_project,
        shape.ProjectRowShape,
        shape.OpenRequestShape,
        status=201,
    ),
)
