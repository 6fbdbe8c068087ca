"""What all commands of a session share of this machine: the launcher, limits, the gate, containers, confinement.

Rules of this file:
1. Each is made once, by the first command that needs it, of whichever thread.
2. Nothing of one command is kept: what a command asks for is in its order, what there is to say in its outcome.
"""

from __future__ import annotations

import _thread
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from mudroom.core.confinement.fallback import CONTAINERS, ELSEWHERE, Mode
from mudroom.core.confinement.limit import needed_controllers, without_groups
from mudroom.core.confinement.plan import Plan
from mudroom.errors import Unsupported
from mudroom.sandbox.client.client import Client, Running, StepFailed
from mudroom.sandbox.platform import LINUX, Platform
from mudroom.session.actor import Actor
from mudroom.session.confinement.confinement import Confinement, Rlimits
from mudroom.session.confinement.grant import Grant, granted
from mudroom.session.order import Order, Outcome
from mudroom.vault.store.credentials import has_credentials, load_credentials, save_credentials
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.core.confinement.container import EngineKind
    from mudroom.core.confinement.image import User
    from mudroom.core.network.host_rules import HostRule
    from mudroom.core.network.placeholder import CredentialRule
    from mudroom.net.inspection.equipment import Equipment
    from mudroom.sandbox.client.terminal import Relay
    from mudroom.sandbox.container.image_file import ProvidedImage
    from mudroom.sandbox.host.mirror import Mirror
    from mudroom.sandbox.limits.cgroup import Leaf
    from mudroom.sandbox.limits.limiter import Limiter
    from mudroom.session.confinement.containers import Containers
    from mudroom.session.confinement.gateway import Approver, Doorkeeper, Gateway

MOST_HELD = 64
"""Commands that are over, and whose mounts may not be gone yet."""


def _secret_values(environ: Mapping[bytes, bytes]) -> set[str]:
    from mudroom.core.text.redaction import secret_values

    return secret_values(environ)


class Machine:
    """``_making`` guards the making of the launcher, the limiter, the gateway and the containers. ``_limiting`` guards
    the limiter from deciding about limits until the group that holds them is made. ``_last`` is used by single
    operations of a dict. ``host_answers`` is replaced as a whole."""

    def __init__(
        self,
        vault: Vault,
        *,
        home: bytes,
        environ: Mapping[bytes, bytes],
        platform: Platform = LINUX,
        client: Client | None = None,
        clock: Callable[[], int],
        engine: EngineKind | None = None,
        rules: Callable[[], Sequence[HostRule]] = tuple,
        remember: Callable[[HostRule], None] = lambda _rule: None,
        approver: Approver | None = None,
    ) -> None:
        """``engine``: of containers; None: the first that can be used. ``rules``: those of the gate, asked for whenever
        a command first uses the network. ``remember`` keeps an answer that is to stay. ``approver``: whom the gate asks
        about a host; None: what no rule allows is refused."""

        def images(name: str, user: User) -> ProvidedImage:
            return self.containers.image(name, user)

        self.confinement = Confinement(vault, home, environ, platform, images)
        vault.secrets = functools.partial(_secret_values, environ)
        self._vault, self._clock, self._engine = vault, clock, engine
        self._client, self._owns_client = client, client is None
        self._making = _thread.allocate_lock()
        self._limiting = _thread.allocate_lock()
        self._limiter: Limiter | None = None
        self._gateway: Gateway | None = None
        self._containers: Containers | None = None
        self.host_answers = (rules, remember, approver)
        self._looked = _thread.allocate_lock()
        """Taken by the first command that looks for files of other users, and never let go of."""
        self._last: dict[str, Running] = {}
        """By fork: the last command that is over, whose mount may not be gone yet."""

    def close(self) -> None:
        self.confinement.close()
        if self._gateway is not None:
            self._gateway.close()
        if self._limiter is not None:
            self._limiter.close()
        for name in list(self._last):
            self._last.pop(name).close()
        if self._containers is not None:
            self._containers.close()
        if self._client is not None and self._owns_client:
            self._client.close()

    @property
    def client(self) -> Client:
        """The launcher of this process, started at first use."""
        with self._making:
            if self._client is None:
                self._client = self.confinement.platform.client()
                self._client.start()
            return self._client

    @property
    def containers(self) -> Containers:
        from mudroom.session.confinement.containers import Containers

        with self._making:
            if self._containers is None:
                self._containers = Containers(self._vault, self.confinement.variables, self._engine)
            return self._containers

    # --- what a command may ---

    def granted(self, actor: Actor) -> Grant:
        """Return the level at which commands of this actor run, and the credentials that are open to them. Raise
        Refused if the policy refuses, Unsupported if the machine cannot."""
        confinement = self.confinement
        return granted(actor.settings, actor.card, actor.level, confinement.home, confinement.variables)

    def first_mode(self, fork: Fork, order: Order, outcome: Outcome) -> Mode:
        """Return the mode to begin with, and note why it is not the strongest."""
        level = order.grant.level
        if level == 2 and self.containers.engine.remote:
            self.confinement.mode_contained = "remote"
        elif (
            level == 2 and not self.containers.engine.nested and self.confinement.mode_contained not in CONTAINERS
        ):  # sandbox/container/trial.py has tried it: as if it had failed here
            why = StepFailed("clone", 1, "a container that was tried could make no user namespace")
            self.weaker("overlay", why, order, outcome)
        mode, notes = self.confinement.first_mode(order.actor.settings, is_copy=fork.is_copy, level=level)
        outcome.notes += notes
        return mode

    def weaker(self, mode: Mode, failure: StepFailed, order: Order, outcome: Outcome) -> Mode:
        """Return the next weaker mode; that goes into the notes and the journal. Raise Unsupported if the policy does
        not permit it, ``failure`` if there is none."""
        following, lost = self.confinement.weaker(mode, failure, order.actor.settings, order.grant.level)
        outcome.notes.append(lost)
        self._vault.journal.append("degrade", "", {"to": following, "why": failure.message}, time=self._clock())
        return following

    # --- limits ---

    @contextmanager
    def limited(self, mode: Mode, order: Order, outcome: Outcome) -> Iterator[tuple[Rlimits, Leaf | None]]:
        """The rlimits of a command, and the control group for it if its limits need one; afterwards all that is left in
        that ends. Raise Unsupported for a limit that cannot be held here and may not be missing."""
        rlimits, leaf = self._limits(mode, order, outcome)
        try:
            yield rlimits, leaf
        finally:
            if leaf is not None:
                if outcome.running is not None:
                    outcome.running.gone()
                leaf.close()

    def _limits(self, mode: Mode, order: Order, outcome: Outcome) -> tuple[Rlimits, Leaf | None]:
        limits = order.actor.settings.limits
        if not needed_controllers(limits):
            return (), None
        if order.grant.level == 2:
            allowed = self.containers.allowed(limits)
            outcome.note(*allowed.notes)
            return allowed.rlimits, None
        if not self.confinement.platform.has_groups:
            unheld = without_groups(limits)
            if unheld.missing:
                fix = 'permit to go on without: "limits: {missing: degrade}" in .mudroom/policy.yaml'
                found = f"{self.confinement.platform.name}, which has none"
                raise Unsupported(f"a limit of {unheld.missing}", "control groups", found, fix)
            outcome.note(*unheld.notes)
            return unheld.rlimits, None
        limiter = self.limiter
        counts_processes = mode not in ELSEWHERE and os.geteuid() != 0
        with self._limiting:
            held = limiter.hold(limits, counts_processes=counts_processes)
            leaf = limiter.leaf()
        outcome.note(*held.notes)
        return held.rlimits, leaf

    @property
    def limiter(self) -> Limiter:
        from mudroom.sandbox.limits.limiter import Limiter

        client = self.client
        with self._making:
            if self._limiter is None:
                vault = os.fsdecode(self._vault.path.rpartition(b"-")[2])
                places = (self._vault.project, self._vault.path)
                self._limiter = Limiter(vault, client.settle, self.confinement.variables, places)
            return self._limiter

    # --- the network ---

    def ask_about_hosts(self, approver: Approver | None) -> None:
        """Name whom the gate asks from the first use of the network on; None: what no rule allows is refused."""
        rules, remember, _before = self.host_answers
        self.host_answers = (rules, remember, approver)

    def credentials(self) -> tuple[CredentialRule, ...]:
        """Return what the gate puts into requests of this project's commands; never a value."""
        return load_credentials(self._vault.path)

    def keep_credentials(self, wanted: tuple[CredentialRule, ...]) -> None:
        save_credentials(self._vault.path, wanted)

    def equipment(self, mode: Mode, order: Order) -> Equipment | None:
        """Return what a command needs whose connections may be looked into; for all others None, and load nothing."""
        settings, level = order.actor.settings, order.grant.level
        wanted = has_credentials(self._vault.path)
        if settings.network_at(level) != "gate" or not (wanted or any(rule.inspect for rule in settings.hosts)):
            return None
        if level == 0:  # mudroom's state is hidden there, with the roots that programs would have to trust
            raise Unsupported("looking into TLS", "level 1", "level 0", "take it out of the policy, or use level 1")
        from mudroom.net.inspection.equipment import equip

        equipment = equip(
            self._vault.path + b"/inspection",
            self._vault.project,
            self.confinement.variables,
            self.confinement.home,
            never=settings.never_inspect,
            credentials=self.credentials() if wanted else (),
            mounts=mode not in ELSEWHERE,
        )
        self._vault.journal.conceal(one.value for one in equipment.inspection.credentials)
        return equipment

    def at_the_gate(
        self, fork: Fork, mode: Mode, order: Order, relay: Relay | None, equipment: Equipment | None
    ) -> tuple[AbstractContextManager[Doorkeeper | None], int]:
        """Return the doorkeeper of a command, if the policy has the gate between it and the network; and the port of
        the host's loopback where that listens, if it cannot be in a network of the command's own."""
        level = order.grant.level
        gated = order.actor.settings.network_at(level) == "gate"
        if not gated or (mode == "landlock" and self.confinement.host.landlock_abi < 4):
            return nullcontext(), 0
        outside = mode in ELSEWHERE or mode == "remote" or level == 0
        hush = relay.hushed if relay is not None else nullcontext
        inspection = equipment.inspection if equipment is not None else None
        keeper = self.gateway.keeper(fork.entrance, hush, inspection, lambda: fork.name if fork.state.named else "")
        return keeper, keeper.listen() if outside else 0

    @property
    def gateway(self) -> Gateway:
        from mudroom.session.confinement.gateway import Gateway, upstream_of

        with self._making:
            if self._gateway is None:
                self._gateway = Gateway(*self.host_answers, upstream_of(self.confinement.variables))
            return self._gateway

    def terms(self, order: Order) -> Callable[[], str]:
        """Return what tells the terms of a command: what it may see and do, as far as that is not the host's or the
        project's. Only a command on the same terms can join a sandbox.

        It is asked for again and again, because the gate follows its rules while commands run: it is the others, of a
        card, that must not be lent to whoever comes."""
        from _blake2 import blake2b

        settings, grant, rules = order.actor.settings, order.grant, self.host_answers[0]
        network = settings.network_at(grant.level)
        facts = (
            network, settings.read, settings.credentials, settings.limits, settings.secrets_show,
            grant.level, grant.credentials, grant.live, grant.abstract, grant.gpu, grant.image,
        )  # fmt: skip

        def terms() -> str:
            hosts = tuple(rules()) if network == "gate" else ()
            return blake2b(repr((facts, hosts)).encode(), digest_size=16).hexdigest()

        return terms

    # --- around a command ---

    def mirror(self, order: Order) -> Mirror | None:
        """Return what keeps credential stores that are one file like the host's, if any are open."""
        if not order.grant.live or self.confinement.platform.first in ELSEWHERE:  # there a command has the file itself
            return None
        from mudroom.sandbox.host.mirror import mirror_of

        return mirror_of(order.grant.live)

    @contextmanager
    def at_its_place(self, plan: Plan, fork: Fork, order: Order) -> Iterator[Client]:
        """The launcher that performs a plan: this process's, or at level 2 one in a container."""
        if order.grant.level < 2:
            yield self.client
            return
        with self.containers.lend(plan, order.actor.settings, fork.name, lambda: self.client) as box:
            yield box.client

    def after_the_last(self, fork: Fork) -> None:
        """Wait until the last command of this fork has let go of its mount. Hold the fork's lock."""
        before = self._last.pop(fork.name, None)
        if before is not None:
            before.gone()
        if len(self._last) >= MOST_HELD:
            for name in list(self._last):
                over = self._last.pop(name, None)
                if over is not None:
                    over.gone()

    def leave(self, fork: Fork, running: Running) -> None:
        """A command is over; nobody uses ``running`` any more but ``after_the_last``. Hold the fork's lock."""
        self._last[fork.name] = running

    def looks_first(self) -> bool:
        """Return whether this is the first call: files of other users are looked for once in a session."""
        return self._looked.acquire(blocking=False)

    def forget(self, name: str) -> None:
        """A fork is gone, or about to go."""
        running = self._last.pop(name, None)
        if running is not None:
            running.gone()
        if self._containers is not None:
            self._containers.forget(name)
