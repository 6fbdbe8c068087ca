"""The API as a program asks it, without HTTP: a method and a path, checked and answered by the table of endpoints."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import msgspec
import pytest

from conftest import Place
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import Terminal
from mudroom.ext.web.api import table
from mudroom.ext.web.api.endpoint import ApiCall, Raw, decode_body, decode_query, id_of
from mudroom.ext.web.cli.page_server import environment_of
from mudroom.ext.web.state.refusal import Refusal, refusal_of
from mudroom.ext.web.state.server_state import ServerState


class Asked:
    """The server of one test. What is given goes through JSON, there and back."""

    def __init__(self, place: Place, *, roots: tuple[bytes, ...] | None = None) -> None:
        self.place = place
        environ = {
            b"PATH": os.environb[b"PATH"],
            b"HOME": os.fsencode(place.home),
            b"MUDROOM_STATE": os.fsencode(place.state),
            b"MUDROOM_TRUST_POLICY": b"1",
            b"PYTHONPATH": os.pathsep.join(sys.path).encode(),
            b"LC_ALL": b"C.UTF-8",
        }
        context = Context(environ, Terminal(environ), True, None)
        self.server = ServerState(environment_of(context, [os.fsencode(place.root)] if roots is None else roots))

    def __call__(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The answer, as JSON has it. Raises Refusal."""
        for one in table.ENDPOINTS:
            found = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", one.path), path)
            if one.method == method and found is not None:
                words = {name: str(value) for name, value in query.items()}
                given = decode_body(one.takes, msgspec.json.encode(body)) if one.takes is not None else None
                try:
                    answer = one.handle(ApiCall(self.server, found.groupdict(), decode_query(one.query, words), given))
                except Exception as error:
                    raise refusal_of(error) from error
                return answer if isinstance(answer, Raw) else msgspec.json.decode(msgspec.json.encode(answer))
        raise AssertionError(f"there is no {method} {path}")

    def get(self, path: str, **query: Any) -> Any:
        return self("GET", path, **query)

    def post(self, path: str, body: Any = None) -> Any:
        return self("POST", path, {} if body is None else body)

    def refused(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, str, str]:
        """Status, code and text of the problem that this is."""
        with pytest.raises(Refusal) as caught:
            self(method, path, body, **query)
        return caught.value.status, caught.value.problem.code, caught.value.problem.error

    @property
    def at(self) -> str:
        """The path of the endpoints of the test's own project."""
        session = self.place.session()
        return "/projects/" + os.path.basename(session.vault.path).decode()


def folder(path: os.PathLike[str] | bytes) -> str:
    """The id of a folder."""
    return id_of(os.fsencode(path))
