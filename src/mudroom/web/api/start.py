"""New sessions: choosing a folder, and what staging it would take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from msgspec import Struct

from mudroom.core.tree.path import show_path
from mudroom.errors import UsageError
from mudroom.review import new_project
from mudroom.web import shape
from mudroom.web.api.endpoint import ApiCall, Endpoint, id_of, path_of
from mudroom.web.api.project import badge_of
from mudroom.web.state.refusal import Refusal
from mudroom.web.state.server_environment import ServerEnvironment
from mudroom.web.state.server_state import ServerState

_SHOWN = 50
"""Paths that are listed of what is left out, and of secrets."""


class FoldersQuery(Struct):
    at: str = ""
    """A folder's id; empty: the roots."""


def folders(call: ApiCall) -> shape.FoldersShape:
    query: FoldersQuery = call.query
    environment, known = call.server.environment, _known(call.server)
    if not query.at:
        roots = [new_project.looked_at(root, root, None) for root in environment.roots]
        return shape.FoldersShape(None, None, [_folder(one, known) for one in roots])
    path = path_of(query.at)
    with _opened(call.server, path) as (root, descriptor):
        name = os.path.basename(path)
        marked = new_project.described(path, name or path, descriptor)
        found = new_project.listing(path, descriptor)
    above = "" if path == root else id_of(os.path.dirname(path))
    rows = [_folder(row, known) for row in found.folders]
    refused = new_project.why_not(path, environment.home, environment.state)
    return shape.FoldersShape(_folder(marked, known), above, rows, refused, found.more)


def _folder(folder: new_project.Folder, known: dict[bytes, str]) -> shape.FolderShape:
    vault = known.get(folder.path, "")
    name, path = show_path(folder.name), show_path(folder.path)
    return shape.FolderShape(id_of(folder.path), path, name, folder.is_project, vault, folder.problem)


def _known(server: ServerState) -> dict[bytes, str]:
    """Projects that have a vault, by their path."""
    found = {}
    for vault in server.vaults():
        with closing(vault):
            if vault.project:
                found[vault.project] = os.path.basename(vault.path).decode()
    return found


@contextmanager
def _opened(server: ServerState, path: bytes) -> Iterator[tuple[bytes, int]]:
    """Raises Refusal."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(new_project.opened(server.environment.roots, path))
        except UsageError as error:
            raise Refusal(403, "forbidden", error.message, error.hint) from None
        except OSError as error:
            words = error.strerror or str(error)
            raise Refusal(404, "not-found", f"{show_path(path)} cannot be opened: {words.lower()}") from None
        yield found


def measure(call: ApiCall) -> shape.MeasureShape:
    asked: shape.OpenRequestShape = call.body
    path, environment = path_of(asked.id), call.server.environment
    with _opened(call.server, path) as (_root, descriptor):
        _require_possible(path, environment)
        seen = environment.outlook(path)
        found = new_project.measure(descriptor, seen.settings)
    limit = seen.settings.copy_limit
    notes = [*seen.notes]
    if found.unread:
        notes.append(f"{found.unread:,} directories cannot be read, and are not counted")
    return shape.MeasureShape(
        found.files,
        found.size,
        found.complete,
        [_remark(path, words) for path, words in found.excluded[:_SHOWN]],
        limit,
        seen.view,
        badge_of(seen.level),
        [show_path(path) for path in found.secrets[:_SHOWN]],
        notes,
        found.copied,
        len(found.excluded),
        len(found.secrets),
    )


def _require_possible(path: bytes, environment: ServerEnvironment) -> None:
    """Raises Refusal if a folder cannot be a project."""
    refused = new_project.why_not(path, environment.home, environment.state)
    if refused:
        raise Refusal(409, "failed", refused)


def _remark(path: bytes, words: str) -> shape.RemarkShape:
    return shape.RemarkShape(id_of(path), show_path(path), words)


def make(call: ApiCall) -> shape.ProjectRowShape:
    """What was looked at becomes the project, and nothing that came into its place meanwhile."""
    asked: shape.OpenRequestShape = call.body
    path, environment = path_of(asked.id), call.server.environment
    with _opened(call.server, path) as (_root, descriptor):
        _require_possible(path, environment)
        if os.path.realpath(path) != path:
            raise Refusal(409, "moved", f"{show_path(path)} is somewhere else by now")
        session, notes = environment.open(path)
        with session:
            if session.project != path or not new_project.is_same(descriptor, session.project):
                raise Refusal(409, "moved", f"{show_path(path)} is not the folder any more that it was", "look again")
            forks = len(session.vault.forks())
            name = os.path.basename(session.vault.path).decode()
    return shape.ProjectRowShape(name, show_path(path), True, forks, 0, 0, 0, list(notes))


ENDPOINTS = (
    Endpoint("GET", "/folders", "Folders that may become a project", folders, shape.FoldersShape, query=FoldersQuery),
    Endpoint(
        "POST",
        "/folders/measure",
        "What staging a folder would take",
        measure,
        shape.MeasureShape,
        shape.OpenRequestShape,
    ),
    Endpoint(
        "POST", "/projects", "Make a folder a project", make, shape.ProjectRowShape, shape.OpenRequestShape, status=201
    ),
)
