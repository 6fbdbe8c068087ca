"""The profile catalogue: mudroom's own, and the user's, which replace those with the same name.

A user's profile is ``agents/NAME.toml`` in the user's policy directory. A project has none: a profile opens logins and
hosts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from mudroom.core.confinement.limit import show_size
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.agents.core.field import FieldError
from mudroom.ext.agents.core.profile import AgentProfile, parse_profile
from mudroom.typing import TypeVar

T = TypeVar("T")

OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)).encode(), b"profiles")
SUFFIX = b".toml"
LIMIT = 1 << 18
"""Bytes in a profile file."""


class Catalog:
    """Immutable: files are read on request. ``user``: the user's policy directory; None: only mudroom's own
    profiles."""

    def __init__(self, user: bytes | None = None) -> None:
        self._directories = (OWN,) if user is None else (user + b"/agents", OWN)

    def names(self) -> list[str]:
        """Return all profiles' names, sorted."""
        names: set[str] = set()
        for directory in self._directories:
            try:
                names |= {os.fsdecode(name.removesuffix(SUFFIX)) for name in _files(directory)}
            except FileNotFoundError:
                continue  # the user has none
        return sorted(names)

    def profile(self, name: str) -> AgentProfile:
        """Return the profile with this name. Raise UsageError if there is none or it is not valid."""
        path = self._path(name)
        if path is None:
            raise UsageError(f"there is no profile of an agent {name!r}", "known: " + ", ".join(self.names()))
        profile = read_profile(path)
        if profile.name != name:
            raise UsageError(f"{show(path)}: name is {profile.name!r}", f'name = "{name}", as the file is called')
        return profile

    def of_program(self, program: str) -> AgentProfile | None:
        """Return the profile for a program, given without its directory, or None. If a profile has the program's name,
        no other is read."""
        if self._path(program) is not None:
            return self.profile(program)
        return next((profile for profile in map(self.profile, self.names()) if program in profile.programs), None)

    def of_store(self, store: str) -> AgentProfile | None:
        """Return the profile whose agent has this credential store, or None."""
        return next((profile for profile in map(self.profile, self.names()) if profile.store == store), None)

    def of_homes(self, fork: bytes) -> list[AgentProfile]:
        """Return the profiles of the agents that have worked in a fork with their stores. ``fork``: its directory."""
        try:
            stores = sorted(map(os.fsdecode, os.listdir(fork + b"/home")))
        except FileNotFoundError:
            return []
        return [self.profile(store) for store in stores if self._path(store) is not None]

    def has(self, name: str) -> bool:
        return self.of_program(name) is not None

    def installed(self, is_there: Callable[[str], bool]) -> list[str]:
        """Return the agents for which ``is_there`` finds a program."""
        return [name for name in self.names() if any(map(is_there, self.profile(name).programs))]

    def inner_sandbox(self, program: str, level: int) -> str:
        """Return a clause about a program's own sandbox and how to switch it off; empty if that is not known."""
        profile = self.of_program(program)
        if profile is None or not profile.sandbox.about:
            return ""
        import shlex

        inner, name = profile.sandbox, profile.programs[0]
        variables = [f"{variable}={value}" for variable, value in inner.values]
        if not inner.arguments and not variables:
            return f"{profile.name}: {inner.about}"
        switch = f"this switches it off: {shlex.join([name, *inner.arguments])}"
        if level == 0:
            switch = "at level 1 mudroom confines it: --level 1"
        elif not inner.arguments:
            switch = f"mudroom agent run -- {name} switches it off ({' '.join(variables)})"
        return f"{profile.name}'s own sandbox cannot run inside mudroom's; {switch}"

    def is_users(self, name: str) -> bool:
        path = self._path(name)
        return path is not None and not path.startswith(OWN)

    def _path(self, name: str) -> bytes | None:
        if not name or "/" in name or name.startswith("."):
            return None
        paths = (directory + b"/" + os.fsencode(name) + SUFFIX for directory in self._directories)
        return next((path for path in paths if os.path.exists(path)), None)


def _files(directory: bytes) -> Iterator[bytes]:
    return (name for name in os.listdir(directory) if name.endswith(SUFFIX) and not name.startswith(b"."))


def read_profile(path: bytes) -> AgentProfile:
    """Return a file's profile. Raise UsageError with one line that names the file."""
    import tomllib

    name = show(path)

    def parse(data: bytes) -> AgentProfile:
        try:
            return parse_profile(tomllib.loads(data.decode()), name)
        except UnicodeDecodeError as error:
            raise UsageError(f"{name}: this is not UTF-8") from error
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{name}: this is not TOML: {error}") from error

    return read_file(path, "profile", LIMIT, parse)


def read_file(path: bytes, kind: str, most: int, parse: Callable[[bytes], T]) -> T:
    """Return a file's content as ``parse`` reads it. Raise UsageError with one line that names the file, also if it has
    more than ``most`` bytes."""
    name = show(path)
    try:
        with open(path, "rb") as stream:
            data = stream.read(most + 1)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from error
    if len(data) > most:
        raise UsageError(f"{name} is larger than any {kind} ({show_size(most)})")
    try:
        return parse(data)
    except RecursionError:
        raise UsageError(f"{name}: nested too deeply") from None
    except FieldError as error:
        message = error.message if error.message.startswith(name) else f"{name}: {error.message}"
        raise UsageError(message, error.hint) from error
