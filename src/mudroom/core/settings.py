"""What can be set for a project, with the defaults. ``policy/parse.py`` reads one file of it, ``policy/combine.py``
all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mudroom.core.agent.sandbox_level import LevelPolicy
from mudroom.core.command.policy import CommandPolicy, Pattern
from mudroom.core.command.verdict import Action
from mudroom.core.confinement.limit import Limits
from mudroom.core.confinement.spec import Network

if TYPE_CHECKING:
    from mudroom.core.network.host_rules import HostRule

VerifyWhen = Literal["merged", "always", "never"]
ViewChoice = Literal["auto", "overlay", "copy"]
AutoApply = Literal["never", "trusted", "always"]
EngineChoice = Literal["auto", "docker", "podman", "container"]


class Settings(NamedTuple):
    level: int = 1
    """Of a command without a card: 0, the staged view only; 1, sandboxed."""
    levels: LevelPolicy = LevelPolicy()
    network: Network | Literal["auto"] = "auto"
    """``auto``: through the gate; at level 0, which is no isolation, the host's."""
    hosts: tuple[HostRule, ...] = ()
    """What the gate lets through: the policy's rules and its presets. The answers of this machine come beside them
    (``policy/host_answers.py``)."""
    network_cards: tuple[str, ...] = ()
    """Agents (by agentId) whose cards are taken at their word about hosts, as far as no rule denies them."""
    never_inspect: tuple[HostRule, ...] = ()
    """Hosts that are not looked into, whatever rules say."""
    view: ViewChoice = "auto"
    timeout: float | None = None
    """Seconds; None: no limit."""
    environment: tuple[bytes, ...] = ()
    """NAME or NAME=VALUE, beyond the allowlist."""
    engine: EngineChoice = "auto"
    """Whose containers there are at level 2; ``auto``: the first that answers."""
    image: str | None = None
    """What containers are made from: a name, or ``host`` (``core/confinement/image.py``). None: nobody has said so, and
    a card may
    ask; then, and by itself, it is the host's own toolchain."""
    image_cards: tuple[str, ...] = ()
    """Agents (by agentId) whose cards may say which image they run in."""
    warm: int = 0
    """Containers that a session keeps ready beside those that are in use."""
    secrets_mask: tuple[bytes, ...] = ()
    """Names, or names with a ``*`` at an end, that are shown empty to commands beyond the usual ones."""
    secrets_show: tuple[bytes, ...] = ()
    """Paths and names of secrets that commands may read."""
    credentials: tuple[bytes, ...] = ()
    """Files of the home that commands may read, as ``~/NAME``."""
    read: tuple[bytes, ...] = ()
    """Absolute paths shown read-only, beyond system directories and toolchains."""
    output_limit: int = 8 * 1024 * 1024
    """Bytes of captured stdout, and of stderr; the rest is dropped and said to be."""
    limits: Limits = Limits()
    """What a command, and all of the vault together, may use."""
    copy_limit: int = 500 * 1024 * 1024
    """Bytes that a staged copy may have."""
    copy_exclude: tuple[bytes, ...] = ()
    """Patterns as in gitignore(5): what a staged copy leaves out."""
    copy_gitignore: bool = False
    """A staged copy leaves out what the project's .gitignore files name, even if there is room for it."""
    verify: tuple[bytes, ...] = ()
    """The command that has to succeed on the result of an apply before it is written; empty: none."""
    verify_when: VerifyWhen = "merged"
    """``merged``: when something was merged or decided; ``always``; ``never``."""
    verify_timeout: float | None = None
    """Seconds; None: no limit."""
    keep_age: float = 30 * 86400.0
    """Seconds. Applies and automatic checkpoints that are older go."""
    keep_applies: int = 50
    """So many applies stay to be undone, and so many automatic checkpoints of each fork."""
    keep_journal: int = 64 * 10**6
    """Bytes of the journal's database; beyond that older events move to an archive. None ever goes."""
    keep_journal_age: float = 90 * 86400.0
    """Seconds. Events that are older move to an archive."""
    keep_bytes: int = 5 * 10**9
    """Bytes on disk that the applies may have together; the oldest go first."""

    commands: CommandPolicy = CommandPolicy()
    """What is done about agents' commands. The user's own are not judged by it."""
    background: Action = "allow"
    """What is done about an agent's command that is to go on beside others."""
    approval_timeout: float = 300.0
    """Seconds that a question about a command waits; then it is denied."""
    user_level: int | None = None
    """Of the user's own commands; None: as ``level``. From here on: of ``mudroom run``."""
    auto_apply: AutoApply = "never"
    """What is applied without being asked about; ``trusted``: what commands of ``trusted`` did."""
    auto_apply_trusted: bool = False
    """The same as ``auto_apply: trusted``, beside it."""
    auto_apply_flagged: bool = False
    """Even what runs by itself later is applied without being asked about."""
    trusted: tuple[Pattern, ...] = ()
    """First words of commands."""
    show_diff_threshold: int = 0
    """Lines: a diff that has no more is shown at once."""

    def network_at(self, level: int) -> Network:
        if self.network == "auto":
            return "open" if level == 0 else "gate"
        return self.network


class LeftOut(NamedTuple):
    """An item of the project's policy that the user has not trusted."""

    text: str
    at: str
    """File and line."""


class Loaded(NamedTuple):
    """The settings, and how they came about."""

    settings: Settings = Settings()
    left_out: tuple[LeftOut, ...] = ()
    why: str = ""
    """Why it was left out, a clause."""
    given: tuple[Any, ...] = ()
    """What counts, item by item (``policyfile.Given``), if that was asked for."""
    files: tuple[bytes, ...] = ()
    """Whose change may change the settings, those that are not there included."""
