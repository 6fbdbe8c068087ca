"""The machine resources that a session's commands share: launcher, limits, gate, containers, confinement.

Rules in this file:
1. Each resource is made once, by the first command that needs it, in any thread.
2. A command's state is not kept here: its request is in its order, its notes in its outcome.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from mudroom.core.confinement.default_limit import group_defaults
from mudroom.core.confinement.fallback import CONTAINERS, ELSEWHERE, Mode
from mudroom.core.confinement.limit import (
    NAMES,
    NAMESPACED,
    Limits,
    needed_controllers,
    requested,
    show_limit,
    without_groups,
)
from mudroom.core.confinement.plan import Plan
from mudroom.core.tree.stack import LIVE
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.sandbox.client.report import StepFailed
from mudroom.sandbox.platform import LINUX, Platform, no_gate_at_level_0
from mudroom.session.actor import Actor
from mudroom.session.confinement.appearance import needs_namespaces
from mudroom.session.confinement.confinement import Confinement, Rlimits
from mudroom.session.confinement.crowd import Crowd
from mudroom.session.confinement.grant import Grant, granted
from mudroom.session.confinement.host_approver import NO_ANSWERS, HostAnswers
from mudroom.session.confinement.standing import StandingSandboxes
from mudroom.session.order import Order, Outcome, ProtectionLost
from mudroom.stage import disk
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.caches.fork_cache import CacheUse, ForkCache, note_pool
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.core.confinement.cache_place import CacheView
    from mudroom.core.network.host_rules import HostRule
    from mudroom.core.network.loopback import LoopbackPlace
    from mudroom.core.settings import EngineChoice, Settings
    from mudroom.sandbox.client.client import Client, Running
    from mudroom.sandbox.client.terminal import Relay
    from mudroom.sandbox.limits.cgroup import Leaf
    from mudroom.sandbox.limits.limiter import Limiter
    from mudroom.session.confinement.command_gate import CommandGate, Equipment, PushDesk, SessionGate
    from mudroom.session.confinement.dialler import Dialler
    from mudroom.session.confinement.host_approver import Approver
    from mudroom.session.confinement.level_two import SessionContainers
    from mudroom.stage.views.secret import Mask

MOST_HELD = 64
"""Maximum number of ended commands whose mounts may not be gone yet."""


def _require_relied(mode: Mode, outcome: Outcome) -> None:
    if outcome.relies and (mode in ELSEWHERE or mode in CONTAINERS):
        raise ProtectionLost


def _require_mounts(vault: Vault, mode: Mode, found: str) -> None:
    """Raise Unsupported if the project appears elsewhere and a command in this mode has no mount namespace."""
    if vault.is_elsewhere and mode in ELSEWHERE:
        raise needs_namespaces(found)


def _secrets(environ: Mapping[bytes, bytes], vault: Vault) -> Callable[[], frozenset[str]]:
    """Return a function that returns all secret values, in all their forms: from environment variables that are secret
    by name, and from the masked files, read again when the mask has changed."""
    known: tuple[Mask | None, frozenset[str]] = (None, frozenset())

    def secrets() -> frozenset[str]:
        nonlocal known
        mask = vault.mask
        if known[0] is not mask:
            from mudroom.core.text.redaction import secret_values

            values = secret_values(environ)
            if mask.paths:
                from mudroom.stage.views.masked_value import masked_values

                values |= masked_values(vault.source, mask.paths)
            known = mask, _forms(values)
        return known[1]

    return secrets


def _forms(values: Collection[str]) -> frozenset[str]:
    if not values:
        return frozenset()
    from mudroom.core.text.known_value import forms_of

    return frozenset(form for value in values for form in forms_of(value))


class EndedCommands:
    """Each fork's last ended command, whose mount may not be gone yet. Used by single dict operations."""

    def __init__(self) -> None:
        self._by_fork: dict[str, Running] = {}

    def add(self, fork: Fork, running: Running) -> None:
        """Hand over an ended command: the caller does not use ``running`` any more. Hold the fork's lock."""
        self._by_fork[fork.name] = running

    def wait(self, name: str) -> bool:
        """Wait until the mount of the fork's last command is gone. Return whether this session had run a command
        there."""
        running = self._by_fork.pop(name, None)
        if running is not None:
            running.wait_gone()
        return running is not None

    def wait_before(self, fork: Fork) -> bool:
        """As ``wait``, before the fork is mounted again; if there are many ended commands, wait for the other forks',
        too. Hold the fork's lock."""
        had_one = self.wait(fork.name)
        if len(self._by_fork) >= MOST_HELD:
            for name in list(self._by_fork):
                self.wait(name)
        return had_one

    def close(self) -> None:
        for name in list(self._by_fork):
            self._by_fork.pop(name).close()


class Machine:
    """``_making`` guards the creation of launcher, limiter, gate and containers. ``_limiting`` is held from the
    limiter's decision about limits until the group that enforces them is made. ``host_answers`` is replaced as a
    whole."""

    def __init__(
        self,
        vault: Vault,
        *,
        home: bytes,
        environ: Mapping[bytes, bytes],
        platform: Platform = LINUX,
        client: Client | None = None,
        clock: Callable[[], int],
        engine: EngineChoice = "auto",
        hosts: HostAnswers = NO_ANSWERS,
        umask: int | None = None,
    ) -> None:
        """``umask``: for commands; None: this process's. ``engine``: for containers."""
        self.confinement = Confinement(vault, home, environ, platform, lambda: self.containers, umask)
        vault.secrets = _secrets(environ, vault)
        self._vault, self._clock, self._engine = vault, clock, engine
        self._client, self._owns_client = client, client is None
        self._making = _thread.allocate_lock()
        self._limiting = _thread.allocate_lock()
        self._limiter: Limiter | None = None
        self._gate: SessionGate | None = None
        self._containers: SessionContainers | None = None
        self.host_answers = hosts
        self._dialler = hosts.dialler
        self._loopback_rules = hosts.loopback_rules or hosts.rules
        self._looked = _thread.allocate_lock()
        """Taken by the first command that looks for other users' files, and never released."""
        self.standing = StandingSandboxes(vault.source)
        self.crowd = Crowd()
        self.ended = EndedCommands()

    def close(self) -> None:
        self.standing.close()
        self.confinement.close()
        if self._gate is not None:
            self._gate.close()
        if self._limiter is not None:
            self._limiter.close()
        self.ended.close()
        if self._containers is not None:
            self._containers.close()
        if self._client is not None and self._owns_client:
            self._client.close()

    @property
    def client(self) -> Client:
        """This process's launcher, started at first use."""
        with self._making:
            if self._client is None:
                self._client = self.confinement.platform.client(self.confinement.variables)
                self._client.start()
            return self._client

    @property
    def containers(self) -> SessionContainers:
        """The level 2 containers, made at first use. Raises NotInstalled if this installation has none."""
        from mudroom.session.confinement.level_two import level_two

        with self._making:
            if self._containers is None:
                self._containers = level_two().containers(self._vault, self.confinement.variables, self._engine)
            return self._containers

    # --- a command's permissions ---

    def granted(self, actor: Actor) -> Grant:
        """Return the level at which this actor's commands run and the credentials that they may use. Raise Refused if
        the policy refuses, Unsupported if the machine cannot."""
        confinement = self.confinement
        grant = granted(actor.settings, actor.card, actor.level, confinement.own_home, confinement.variables)
        if self._vault.is_elsewhere and not grant.level:
            raise needs_namespaces("level 0")
        return grant

    def first_mode(self, fork: Fork, order: Order, outcome: Outcome) -> Mode:
        """Return the first attempt's mode, and note why it is not the strongest. Raise ProtectionLost as ``weaker``
        does."""
        level = order.grant.level
        strongest = self.containers.engine.mode if level == 2 else "overlay"
        if strongest == "remote":
            self.confinement.mode_contained = "remote"
        elif strongest == "plain" and self.confinement.mode_contained not in CONTAINERS:  # handled as a failure here
            why = StepFailed("clone", 1, "a container that was tried could make no user namespace")
            self.weaker("overlay", why, order, outcome)
        is_copy = fork.is_copy or outcome.mounted is not None
        mode, notes = self.confinement.first_mode(
            order.actor.settings, is_copy=is_copy, level=level, is_frozen=fork.state.base != LIVE
        )
        _require_mounts(self._vault, mode, "no user namespaces for this session")
        outcome.notes += notes
        _require_relied(mode, outcome)
        return mode

    def weaker(self, mode: Mode, failure: StepFailed, order: Order, outcome: Outcome) -> Mode:
        """Return the next weaker mode, and note and journal it. Raise Unsupported if the policy does not permit it,
        ``failure`` if no weaker mode exists, UsageError if the command's directory cannot be entered, ProtectionLost if
        the verdict relies on namespaces, which the weaker mode lacks."""
        if failure.op == "cwd":
            raise UsageError(failure.message, failure.hint) from failure
        following, lost = self.confinement.weaker(mode, failure, order.actor.settings, order.grant.level)
        _require_mounts(self._vault, following, failure.message)
        outcome.note(lost)
        self._vault.journal.append("degrade", "", {"to": following, "why": failure.message}, time=self._clock())
        _require_relied(following, outcome)
        return following

    # --- limits ---

    @contextmanager
    def limited(self, mode: Mode, order: Order, outcome: Outcome) -> Iterator[tuple[Rlimits, Leaf | None]]:
        """Yield a command's rlimits, and its control group if its limits need one; afterwards kill the processes left
        in the group. Raise Unsupported for a required limit that cannot be enforced here."""
        rlimits, leaf = self._limits(mode, order, outcome)
        try:
            yield rlimits, leaf
        finally:
            if leaf is not None:
                if outcome.running is not None:
                    outcome.running.wait_gone()
                leaf.close()

    def _limits(self, mode: Mode, order: Order, outcome: Outcome) -> tuple[Rlimits, Leaf | None]:
        limits = requested(order.actor.settings.limits)
        if mode in ELSEWHERE or mode in CONTAINERS:
            outcome.note(*self._without_own_limits(limits))
        if not needed_controllers(limits):
            return (), None
        if order.grant.level == 2:
            allowed = self.containers.allowed(limits)
            outcome.note(*allowed.notes)
            return allowed.rlimits, None
        if self.confinement.platform.hold is not None:
            return (), None
        if not self.confinement.platform.has_groups:
            unheld = without_groups(limits)
            if unheld.missing:
                fix = 'permit to go on without: "limits: {missing: degrade}" in .mudroom/policy.yaml'
                found = f"{self.confinement.platform.system}, which has none"
                raise Unsupported(f"a limit of {unheld.missing}", "control groups", found, fix)
            outcome.note(*unheld.notes)
            return unheld.rlimits, None
        usual = group_defaults(order.actor.settings.limits, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        limiter = self.limiter
        counts_processes = mode not in ELSEWHERE and disk.user() != 0
        with self._limiting:
            held = limiter.hold(limits, counts_processes=counts_processes)
            leaf = limiter.leaf(usual)
        outcome.note(*held.notes)
        return held.rlimits, leaf

    def _without_own_limits(self, limits: Limits) -> Iterator[str]:
        """Yield a note for each requested limit that only a sandbox with its own namespaces enforces. Raise Unsupported
        if such a limit is required."""
        for kind in NAMESPACED:
            limit = getattr(limits, kind)
            if limit is None:
                continue
            if limits.missing == "refuse":
                fix = 'permit to go on without: "limits: {missing: degrade}" in .mudroom/policy.yaml'
                raise Unsupported(f"a limit of {NAMES[kind]}", "user namespaces", "a sandbox without them", fix)
            yield f"limit {NAMES[kind]}, {show_limit(kind, limit)}: not enforced (no namespaces here)"

    @property
    def limiter(self) -> Limiter:
        from mudroom.sandbox.limits.limiter import Limiter

        client = self.client
        with self._making:
            if self._limiter is None:
                vault = os.fsdecode(self._vault.path.rpartition(b"-")[2])
                places = (self._vault.source, self._vault.path)
                self._limiter = Limiter(vault, client.prepare_move, self.confinement.variables, places)
            return self._limiter

    # --- the network ---

    def ask_about_hosts(self, approver: Approver | None) -> None:
        """Set the approver that the gate asks, from the first network use on; None: refuse hosts that no rule
        allows."""
        self.host_answers = self.host_answers._replace(approver=approver)

    def stored_rules(self, actor: Actor, level: int) -> Sequence[HostRule]:
        """Return the host rules if any may name this machine's loopback, or holds pushes; otherwise no rules. They are
        read once for a command."""
        if actor.settings.network_at(level) != "gate":
            return ()
        try:
            return self._for_agent(actor, level)(self._loopback_rules())
        except MudroomError:
            return ()  # the gate says so when the command uses the network

    def _for_agent(self, actor: Actor, level: int) -> Callable[[Sequence[HostRule]], Sequence[HostRule]]:
        """Return a function that returns the rules for an actor's commands."""
        is_plain = actor.agent is None or not level or self.confinement.platform.is_bridged
        return HostAnswers().for_agent if is_plain else self.host_answers.for_agent

    def equipment(self, mode: Mode, order: Order, stored: Sequence[HostRule]) -> Equipment | None:
        """Return the equipment to inspect a command's TLS, or None (without loading a module) if no rule inspects its
        connections. ``stored``: the ``stored_rules``. Raise NotInstalled if this installation cannot inspect."""
        settings, level = order.actor.settings, order.grant.level
        if settings.network_at(level) != "gate":
            return None
        inspecting = next((rule for rule in (*settings.hosts, *stored) if rule.inspect), None)
        if inspecting is None and not self._vault.has_credentials:
            return self._equipment_for_answers(mode, order, stored)
        if self.confinement.platform.is_bridged:  # authority.py judges its files by mode and owner
            found = self.confinement.platform.system
            raise Unsupported("looking into TLS", "Linux or macOS", found, "take it out of the policy")
        if level == 0:  # mudroom's state is hidden there, including the root certificates that programs must trust
            raise Unsupported("looking into TLS", "level 1", "level 0", "take it out of the policy, or use level 1")
        why = "mudroom net credential" if inspecting is None else inspecting.source or inspecting.pattern
        return self._equip(mode, order, stored, f"looking into TLS ({why})")

    def _equipment_for_answers(self, mode: Mode, order: Order, stored: Sequence[HostRule]) -> Equipment | None:
        """Return the equipment for an agent that runs inside as a whole, so that the answer to a question can hold its
        pushes at once; None for other commands, and where nothing can be inspected."""
        if order.actor.card is None or not order.grant.level or self.confinement.platform.is_bridged:
            return None
        from mudroom.session.confinement.command_gate import can_inspect

        try:
            return self._equip(mode, order, stored, "") if can_inspect() else None
        except MudroomError:
            return None  # no rule needs it

    def _equip(self, mode: Mode, order: Order, stored: Sequence[HostRule], why: str) -> Equipment:
        from mudroom.core.registry import part

        equipment: Equipment = part("inspection", "session", why).equip(
            self._vault.path,
            self._vault.project,
            self.confinement.variables,
            self.confinement.home,
            never=order.actor.settings.never_inspect,
            mounts=mode not in ELSEWHERE,
            rules=(*order.actor.settings.hosts, *stored),
        )
        self._vault.journal.conceal(_forms([credential.value for credential in equipment.inspection.credentials]))
        return equipment

    def at_the_gate(
        self,
        fork: Fork,
        mode: Mode,
        order: Order,
        outcome: Outcome,
        relay: Relay | None,
        equipment: Equipment | None,
        stored: Sequence[HostRule],
    ) -> tuple[AbstractContextManager[CommandGate | None], int]:
        """Return a command's gate, if the policy puts the gate between the command and the network, and the gate's port
        on the host's loopback if the command has no network namespace (else 0). ``stored``: the ``stored_rules``."""
        level = order.grant.level
        gated = order.actor.settings.network_at(level) == "gate"
        if not gated or (mode == "landlock" and self.confinement.host.landlock_abi < 4):
            return nullcontext(), 0
        if why := self.confinement.platform.closed.get("gate"):
            hint = f"{why}; --net none works" if self.confinement.platform.is_bridged else why
            raise Unsupported("network: gate", "a gate", self.confinement.platform.system, hint)
        if not level and self.confinement.platform.is_bridged:
            raise no_gate_at_level_0()
        from mudroom.session.confinement.command_gate import CommandGate

        outside = mode in ELSEWHERE or mode == "remote" or level == 0
        inspection = equipment.inspection if equipment is not None else None
        places = self.loopback_places(mode, level, outcome, stored)
        given, change = self._dialler(fork, order), self._for_agent(order.actor, level)
        gate = CommandGate(
            self.gate,
            fork.namespace_listener,
            relay,
            inspection,
            lambda: fork.name if fork.state.named else "",
            places,
            # a proxy on the host's loopback is open to the machine's other users: through it they would reach the fork
            None if outside else lambda: given or dialler_of(self._vault, fork, self.gate, order.actor.settings),
            outcome.is_networked,
            fork.name,
            given is not None and given.all_hosts,
            (lambda: self._holds(fork, change)) if level and not self.confinement.platform.is_bridged else None,
            change,
        )
        return gate, gate.listen(bridged=self.confinement.platform.is_bridged) if outside else 0

    def _holds(self, fork: Fork, change: Callable[[Sequence[HostRule]], Sequence[HostRule]]) -> PushDesk:
        from mudroom.core.registry import part

        desks, rules = part("effects", "desk", "a held push"), self.gate.rules
        desk: PushDesk = desks.HoldDesk(
            self._vault, fork, lambda: change(rules()), self._clock, self.confinement.variables
        )
        return desk

    def loopback_places(
        self, mode: Mode, level: int, outcome: Outcome, rules: Sequence[HostRule]
    ) -> Sequence[LoopbackPlace]:
        """Return this machine's loopback ports that the command reaches from inside; none at level 0, where the
        command has this machine's own loopback."""
        if not rules or not level:
            return ()
        from mudroom.session.confinement.loopback import places_for

        places, notes = places_for(rules, mode)
        outcome.note(*notes)
        return places

    @property
    def gate(self) -> SessionGate:
        from mudroom.session.confinement.command_gate import SessionGate, upstream_of

        with self._making:
            if self._gate is None:
                upstream = upstream_of(self.confinement.variables)
                self._gate = SessionGate(self.host_answers, upstream)
            return self._gate

    def terms(self, order: Order) -> Callable[[], str]:
        """Return a function that returns the digest of a command's terms: its permissions, apart from the host's and
        the project's. Only a command with the same terms can join a sandbox: permissions that a card has opened to one
        command must not leak to another. The function is called for each join, since the gate's rules may change while
        commands run."""
        from _blake2 import blake2b

        settings, grant, rules = order.actor.settings, order.grant, self.host_answers.rules
        network = settings.network_at(grant.level)
        # Each process of a sandbox may read the variables of another there (/proc/PID/environ, proc_pid_environ(5)).
        given = [(name, self.confinement.variables.get(name)) for name in (*settings.environment, *grant.variables)]
        facts = (
            network, settings.read, settings.credentials, settings.limits, settings.secrets_show, given,
            settings.engine_beside,
            grant.level, grant.credentials, grant.live, grant.staged, grant.abstract, grant.gpu, grant.image,
        )  # fmt: skip

        def terms() -> str:
            hosts = tuple(rules()) if network == "gate" else ()
            return blake2b(repr((facts, hosts)).encode(), digest_size=16).hexdigest()

        return terms

    # --- caches ---

    def caches(self, vault: Vault, fork: Fork, order: Order) -> ForkCache:
        """Return the fork's part of the caches for a command. Hold the fork's lock."""
        return ForkCache(vault, fork, self._cache_use(order))

    def note_caches(self, fork: Fork, order: Order) -> None:
        """Record that a command joins the fork's sandbox and uses its caches."""
        note_pool(fork, self._cache_use(order))

    def _cache_use(self, order: Order) -> CacheUse:
        return self.confinement.cache_use(order.grant, order.actor.agent, order.actor.settings.cache_share)

    def cache_view(self, caches: ForkCache, mode: Mode, order: Order, work: bytes = b"") -> CacheView:
        """Return the caches as a plan mounts them. ``work``: as for ``ForkCache.view``."""
        places = self.confinement.cache_places(mode, order.actor.settings, order.grant)
        return caches.view(places, overlay=mode == "overlay", seed=order.actor.settings.copy_limit, work=work)

    # --- around a command ---

    @contextmanager
    def at_its_place(self, plan: Plan, fork: Fork, order: Order) -> Iterator[Client]:
        """Yield the launcher that performs a plan: this process's, or a container's at level 2."""
        if order.grant.level < 2:
            yield self.client
            return
        with self.containers.lend(plan, order.actor.settings, fork.name, lambda: self.client) as client:
            yield client

    def looks_first(self) -> bool:
        """Return whether this is the first call: other users' files are looked for once in a session."""
        return self._looked.acquire(blocking=False)

    def let_go(self, name: str) -> None:
        """Release a fork's resources before it is unmounted, and end idle templates, which have a copy of its mount."""
        self.forget(name)
        if self._client is not None:
            self._client.templates.end_idle()

    def forget(self, name: str) -> None:
        """Release a fork's resources; it is gone or about to be removed."""
        self.ended.wait(name)
        if self._containers is not None:
            self._containers.forget(name)


def dialler_of(vault: Vault, fork: Fork, gate: SessionGate, settings: Settings) -> Dialler:
    """Return the dialler that connects the fork's commands with other forks."""
    from mudroom.session.confinement.dialler import fork_links

    return fork_links().dialler(vault, fork, gate.inner_sockets, settings)


def freezes(machine: Machine, fork: Fork, order: Order) -> bool:
    """Return whether an overlay needs a snapshot of the project as its base, and the fork has no such base yet."""
    frozen = order.grant.level == 2 or fork.state.base != LIVE
    return not frozen and bool(machine.confinement.spanned(order.actor.settings))
