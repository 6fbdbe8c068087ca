"""A project's settings, with defaults. ``policy/parse.py`` reads a single file; ``policy/combine.py`` combines all
files.
"""

from __future__ import annotations

from mudroom.core.agent.sandbox_level import LevelPolicy
from mudroom.core.command.policy import CommandPolicy, Pattern
from mudroom.core.command.verdict import Action
from mudroom.core.confinement.cache_place import CacheShare
from mudroom.core.confinement.limit import Limits
from mudroom.core.confinement.spec import Network
from mudroom.typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.network.fork_host import AgentLink
    from mudroom.core.network.fork_rule import ForkRule
    from mudroom.core.network.host_rules import HostRule

VerifyWhen = Literal["merged", "always", "never"]
HomeChoice = Literal["auto", "private", "staged"]
ViewChoice = Literal["auto", "overlay", "copy"]
AutoApply = Literal["never", "trusted", "always"]
GitSign = Literal["as-git", "on-landing"]
MergeRules = Literal["offer", "apply"]
EngineChoice = Literal["auto", "docker", "podman", "container"]


class StartCommand(NamedTuple):
    """A command that is started in the background of a fork (``ext/live/start.py``)."""

    argv: tuple[bytes, ...]
    port: int = 0
    """It is ready when it listens on this TCP port; 0: none."""
    ready: tuple[bytes, ...] = ()
    """It is ready when this command succeeds; empty: none."""


class Settings(NamedTuple):
    level: int = 1
    """Level for a command without a card: 0, the staged view only; 1, sandboxed."""
    levels: LevelPolicy = LevelPolicy()
    network: Network | Literal["auto"] = "auto"
    """``auto``: through the gate; at level 0, which isolates nothing, the host's network."""
    hosts: tuple[HostRule, ...] = ()
    """The gate's host rules: the policy's rules and presets. This machine's answers are added to them
    (``policy/host_answers.py``)."""
    agent_links: tuple[AgentLink, ...] = ()
    """Pairs of forks: one may reach a server in the other (``core/network/fork_host.py``)."""
    fork_rules: tuple[ForkRule, ...] = ()
    """Ports that forks show to each other, and that they may reach (``core/network/fork_rule.py``)."""
    network_cards: tuple[str, ...] = ()
    """Agents (by agentId) whose cards may add hosts, unless a rule denies them."""
    never_inspect: tuple[HostRule, ...] = ()
    """Hosts whose TLS connections are not inspected, whatever other rules say."""
    view: ViewChoice = "auto"
    engine_beside: bool = False
    """Whether an engine of containers runs beside each command, in a sandbox of its own (``ext/engine``)."""
    home: HomeChoice = "auto"
    """``private``: each command has a home of its own, which ends with it. ``staged``: the user's home is a part of the
    fork. ``auto``: private, unless the agent's profile says staged."""
    timeout: float | None = None
    """Seconds; None: no limit."""
    environment: tuple[bytes, ...] = ()
    """NAME or NAME=VALUE, in addition to the allowlist."""
    engine: EngineChoice = "auto"
    """Container engine at level 2; ``auto``: the first that is available."""
    image: str | None = None
    """Container image: a name, or ``host`` (``core/confinement/container.py``). None: not set; a card may then choose
    an image, and the default is the host's own toolchain."""
    image_cards: tuple[str, ...] = ()
    """Agents (by agentId) whose cards may choose their image."""
    warm: int = 0
    """Containers that a session keeps ready in addition to those in use."""
    secrets_mask: tuple[bytes, ...] = ()
    """File names, or names with ``*`` at either end, that appear empty to commands; the built-in names are added."""
    secrets_show: tuple[bytes, ...] = ()
    """Secrets that commands may read, by path or name."""
    credentials: tuple[bytes, ...] = ()
    """Files in the home directory that commands may read, as ``~/NAME``."""
    read: tuple[bytes, ...] = ()
    """Absolute paths that are visible read-only, in addition to system directories and toolchains."""
    output_limit: int = 8 * 1024 * 1024
    """Bytes of captured stdout, and of stderr. Further output is dropped and reported as truncated."""
    limits: Limits = Limits()
    """Resource limits for a command, and for all of the vault's sandboxes together."""
    copy_limit: int = 500 * 1024 * 1024
    """Largest staged copy, in bytes."""
    copy_exclude: tuple[bytes, ...] = ()
    """gitignore(5) patterns for files that a staged copy omits."""
    copy_gitignore: bool = False
    """Whether a staged copy omits files ignored by the project's .gitignore, even if there is room for them."""
    verify: tuple[bytes, ...] = ()
    """Command that must succeed on an apply's result before it is written; empty: none."""
    verify_when: VerifyWhen = "merged"
    """``merged``: if a file was merged or a conflict decided; ``always``; ``never``."""
    verify_timeout: float | None = None
    """Seconds; None: no limit."""
    start: tuple[StartCommand, ...] = ()
    """Commands for the background of a fork, in their order."""
    start_timeout: float = 60.0
    """Seconds in which each of them has to be ready."""
    merge_rules: MergeRules = "offer"
    """``offer``: a conflict that a rule merges (``ext/merging/rule.py``) is one until the user decides; ``apply``:
    an apply takes the merged text, and says so."""
    git_sign: GitSign = "as-git"
    """When the user's git signs; ``as-git``: a commit of ``apply --commit``, as git's own settings say."""
    keep_age: float = 30 * 86400.0
    """Seconds. Older applies and automatic checkpoints are deleted."""
    keep_applies: int = 50
    """Applies that are kept for undo, and automatic checkpoints in each fork."""
    keep_journal: int = 64 * 10**6
    """Bytes in the journal's database. Beyond that, older events move to an archive; no event is deleted."""
    keep_journal_age: float = 90 * 86400.0
    """Seconds. Older events move to an archive."""
    cache_share: CacheShare = "agent"
    """The pool for new package manager cache entries (``core/confinement/cache_place.py``)."""
    cache_limit: int = 5 * 10**9
    """Bytes in each pool."""
    keep_bytes: int = 5 * 10**9
    """Bytes on disk used by all applies together; the oldest are deleted first."""

    commands: CommandPolicy = CommandPolicy()
    """Rules for agents' commands. They do not apply to the user's own commands."""
    background: Action = "allow"
    """Action for an agent's command that asks to run in the background."""
    approval_timeout: float = 300.0
    """Seconds after which a pending question about a command is denied."""
    user_level: int | None = None
    """Level for the user's own commands; None: the same as ``level``. This and the following settings apply to
    ``mudroom run``."""
    user_pause: float = 10.0
    """Seconds for which agents pause at most for the user's own command."""
    auto_apply: AutoApply = "never"
    """Which changes are applied without a question; ``trusted``: those of commands in ``trusted``."""
    auto_apply_trusted: bool = False
    """Has the same effect as ``auto_apply: trusted``, and can be set beside it."""
    auto_apply_flagged: bool = False
    """Apply changes flagged ``executes-later`` without a question, too."""
    trusted: tuple[Pattern, ...] = ()
    """Commands, by their first words."""
    mcp_apply: bool = False
    """Whether clients of ``mudroom mcp`` may apply their forks."""
    show_diff_threshold: int = 0
    """Lines: a diff up to this length is shown immediately."""

    def network_at(self, level: int) -> Network:
        if self.network == "auto":
            return "open" if level == 0 else "gate"
        return self.network


class LeftOut(NamedTuple):
    """An item in the project's policy that the user has not trusted."""

    text: str
    at: str
    """File and line."""


class Loaded(NamedTuple):
    """The settings and where they come from."""

    settings: Settings = Settings()
    left_out: tuple[LeftOut, ...] = ()
    why: str = ""
    """Reason for ``left_out``, as a clause."""
    given: tuple[Any, ...] = ()
    """The effective items (``GivenSetting``), if they were requested."""
    files: tuple[bytes, ...] = ()
    """Files, including missing ones, that the settings depend on."""
