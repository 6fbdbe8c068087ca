"""One attempt to get out, or to pass the gate: what it tries, where that is known from, and how its success is told.

What runs inside imports only the standard library, this module, ``run`` and its suite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Proof = Literal["canary", "secret", "claim"]
"""How success is judged: by what is seen outside alone, as a canary that sings or a packet; by the content of a file
that only the host can have shown; or by a call that must be refused and was not, of which the attempt returns what it
was given."""
Control = Literal["anybody", "root", "never"]
"""Who can do it where nothing confines: an ordinary user, only root, or nobody (``why`` says why)."""
Body = Callable[[Any], Any]
"""Gets the suite's ``World``. Returns evidence, or None where only the outside can tell. An OSError is a refusal."""


class Attempt(NamedTuple):
    name: str
    group: str
    tries: str
    source: str
    """A CVE, an RFC, a manual page, a known bug; empty where it is plain."""
    body: Body
    proof: Proof
    control: Control
    why: str
    """Why there is no control."""
    alone: bool
    """It ends what runs beside it: it has a sandbox for itself."""
    limits: bool
    """It is bounded, and would not be held without limits."""


class Table(dict[str, Attempt]):
    """The attempts of a suite, by name. ``patience``: seconds for one attempt; ``at_once``: how many run at a time."""

    def __init__(self, *, patience: int, at_once: int = 1) -> None:
        super().__init__()
        self.patience, self.at_once = patience, at_once

    def register(
        self,
        name: str,
        group: str,
        tries: str,
        body: Body,
        source: str = "",
        *,
        proof: Proof = "canary",
        control: Control | bool = "anybody",
        root: bool = False,
        why: str = "",
        alone: bool = False,
        limits: bool = False,
    ) -> None:
        """Add a row to the table. Raise ValueError for a name that is taken or a control that is missing unexplained.

        ``control`` as a bool says whether there is one; False needs no reason. ``root``: only root can do it.
        """
        if name in self:
            raise ValueError(f"two attempts are called {name}")
        if (control == "never") != bool(why):
            raise ValueError(f"{name}: either a control, or the reason why there is none")
        if isinstance(control, bool):
            control = "anybody" if control else "never"
        who: Control = "root" if root and control == "anybody" else control
        self[name] = Attempt(name, group, tries, source, body, proof, who, why, alone, limits)

    def attempt(self, group: str, tries: str, source: str = "", **options: Any) -> Callable[[Body], Body]:
        """``register`` for a function, under its own name."""

        def decorate(body: Body) -> Body:
            self.register(body.__name__.strip("_"), group, tries, body, source, **options)
            return body

        return decorate
