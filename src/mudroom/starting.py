"""One command, from its plan to its end: its view is ready, what it changed is collected by who called.

What goes on beside it is put together here: limits, the gate, the terminal, the turn of others.
"""

from __future__ import annotations

import _thread
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from mudroom.applying import Applying
from mudroom.confine import Confinement, Rlimits
from mudroom.core.confinement.fallback import CONTAINERS, ELSEWHERE, Mode
from mudroom.core.confinement.limit import (
    LimitReached,
    Reading,
    difference,
    needed,
    reached,
    reached_else,
    without_groups,
)
from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.spec import Bind
from mudroom.core.settings import Settings
from mudroom.core.tree.path import show
from mudroom.errors import CommandNotStarted, MudroomError, Unsupported
from mudroom.granting import PLAIN
from mudroom.sandbox.client.capture import CapturedOutput, Watch, attend
from mudroom.sandbox.client.client import Client, Exit, Running, StepFailed
from mudroom.sandbox.platform import LINUX, Platform
from mudroom.stage.view import View
from mudroom.stage.views.overlay import OverlayView
from mudroom.stage.views.preflight import foreign
from mudroom.vault.forks.collection import Progress
from mudroom.vault.forks.live_output import LiveOutput
from mudroom.vault.store.credentials import has_credentials, load_credentials, save_credentials
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault
from mudroom.vault.turn import LOOK

if TYPE_CHECKING:
    from mudroom.contained import Containers
    from mudroom.core.confinement.image import User
    from mudroom.core.network.flow import Flow
    from mudroom.core.network.host_rules import HostRule
    from mudroom.core.network.placeholder import CredentialRule
    from mudroom.gateway import Approver, Doorkeeper, Gateway
    from mudroom.net.inspection.equipment import Equipment
    from mudroom.sandbox.client.terminal import Relay
    from mudroom.sandbox.container.image_file import ProvidedImage
    from mudroom.sandbox.host.mirror import Mirror
    from mudroom.sandbox.limits.cgroup import Leaf
    from mudroom.sandbox.limits.gauge import Gauge
    from mudroom.sandbox.limits.limiter import Limiter

MOST_HELD = 64
"""Commands that are over, and whose mounts may not be gone yet."""


class Stdio(NamedTuple):
    """Descriptors for the command. None: captured (or, for stdin, empty)."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    terminal: bool = False
    """Those that are terminals stay with the caller: the command gets a pseudo-terminal of its own, or pipes, and what
    goes on there is relayed (``sandbox/client/terminal.py``). For the main thread: signals are heeded meanwhile."""
    on_output: Callable[[str, bytes], None] | None = None
    """Called with ``stdout`` or ``stderr`` and what has just come, for each that is captured, in the thread that runs
    the command. What comes beyond the limit of captured output is passed on all the same."""


class Ran(NamedTuple):
    """A command that has ended."""

    started: int
    """Nanoseconds, by the clock that file systems stamp with."""
    ended: Exit
    timed_out: bool
    output: CapturedOutput
    reached: tuple[LimitReached, ...] = ()
    use: Reading | None = None
    flows: tuple[Flow, ...] = ()


def relay_for(stdio: Stdio) -> Relay | None:
    if not stdio.terminal:
        return None
    from mudroom.sandbox.client.terminal import Relay

    return Relay((stdio.stdin, stdio.stdout, stdio.stderr))


def shown(equipment: Equipment | None) -> tuple[Bind, ...]:
    return equipment.binds if equipment is not None else ()


def _secret_values(environ: Mapping[bytes, bytes]) -> set[str]:
    from mudroom.core.text.redaction import secret_values

    return secret_values(environ)


class Starting(Applying):
    def __init__(
        self,
        vault: Vault,
        *,
        home: bytes,
        environ: Mapping[bytes, bytes],
        settings: Settings,
        client: Client | None,
        clock: Callable[[], int],
        progress: Progress | None,
        approver: Approver | None,
        rules: Callable[[], Sequence[HostRule]],
        remember: Callable[[HostRule], None],
        platform: Platform = LINUX,
    ) -> None:
        super().__init__(vault, settings, clock, progress)

        def images(name: str, user: User) -> ProvidedImage:
            return self._boxes().image(name, user)

        self.confinement = Confinement(vault, home, environ, platform, images)
        vault.secrets = functools.partial(_secret_values, environ)
        self._grant = PLAIN
        self._client = client
        self._owns_client = client is None
        self._running: Running | None = None
        self._looked = False
        self._making = _thread.allocate_lock()
        """What all commands share is made by the first of them, of whichever thread."""
        self._limiter: Limiter | None = None
        self._gateway: Gateway | None = None
        self._containers: Containers | None = None
        self._gate_answers = (rules, remember, approver)
        self._last: dict[str, Running] = {}
        """By fork: the last command, whose mount may not be gone yet."""
        self._merged: str | None = None
        """A layer that was made of many while a command ran, for the fork to stand on afterwards."""

    def close(self) -> None:
        """What file tools have written is brought into its forks; then everything is let go."""
        super().close()
        self.confinement.close()
        if self._gateway is not None:
            self._gateway.close()
        if self._limiter is not None:
            self._limiter.close()
        for running in self._last.values():
            running.close()
        self._last.clear()
        if self._containers is not None:
            self._containers.close()
        if self._client is not None and self._owns_client:
            self._client.close()

    def ask_about_hosts(self, approver: Approver | None) -> None:
        """Whom the gate asks from the first use of the network on; None: what no rule allows is refused."""
        rules, remember, _before = self._gate_answers
        self._gate_answers = (rules, remember, approver)

    def _forget(self, name: str) -> None:
        super()._forget(name)
        running = self._last.pop(name, None)
        if running is not None:
            running.gone()
        if self._containers is not None:
            self._containers.forget(name)

    def _attempt(
        self,
        fork: Fork,
        view: View,
        mode: Mode,
        argv: tuple[bytes, ...],
        cwd: bytes,
        stdio: Stdio,
        timeout: float | None,
    ) -> Ran:
        self._said.unwritten = None
        stand_ins = self._hold_limits(mode)
        place = fork.path + b"/private"
        equipment = self._equipment(mode)
        relay = relay_for(stdio)
        given = relay.descriptors if relay is not None else (stdio.stdin, stdio.stdout, stdio.stderr)
        gated, port = self._at_the_gate(fork, mode, relay, equipment)
        mirror = self._mirror()
        with (
            gated as keeper,
            self._group(fork) as leaf,
            LiveOutput(fork.path, stdio.on_output) as heard,
            CapturedOutput(*given, self.settings.output_limit, heard) as output,
        ):
            try:
                plan, env = self.confinement.plan(
                    view.mount(), mode, cwd, place, self.settings, stand_ins, self._grant, port, shown(equipment)
                )
                if equipment is not None:
                    env |= dict(equipment.environment)
                with self._at_its_place(plan, fork) as client:
                    started = self._start_time()
                    fork.begin(started)
                    running = self._begin(fork, client, plan, argv, env, output.descriptors, relay, leaf, keeper)
                    meanwhile = functools.partial(self._meanwhile, fork, view)
                    watch = self._watch(running, keeper, mirror)
                    ended, timed_out = attend(running, output, timeout, meanwhile, watch, keeper)
                    if client.lost(ended):
                        raise MudroomError("the sandbox launcher died", "run the command again; nothing was applied")
                    done, use = self._reached(leaf or client.gauge, ended, timeout if timed_out else None, output)
                return Ran(started, ended, timed_out, output, done, use, self._flows(fork, keeper))
            except (StepFailed, CommandNotStarted) as error:
                fork.end()
                if self._grant.image and isinstance(error, CommandNotStarted) and error.hint:
                    error.hint = f"there is only what the image {self._grant.image} holds"
                raise
            finally:
                self._running = None
                if mirror is not None:
                    mirror.close()
                self._desk.end_live(fork.name)
                if relay is not None:
                    relay.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Side by side with other agents, unless the vault is ours alone."""
        if self._alone:
            yield
            return
        self.vault.turn.begin()
        try:
            yield
        finally:
            self.vault.turn.end()

    def _mirror(self) -> Mirror | None:
        """For credential stores that are one file, if any are open."""
        if not self._grant.live or self.confinement.platform.first in ELSEWHERE:  # there a command has the file itself
            return None
        from mudroom.sandbox.host.mirror import mirror_of

        return mirror_of(self._grant.live)

    def _watch(self, running: Running, keeper: Doorkeeper | None, mirror: Mirror | None) -> Watch | None:
        """What is looked at again and again: whether others wait for their turn, whether rules of the gate have
        changed, whether the host has replaced a credential store."""
        if self._alone and keeper is None and mirror is None:
            return None

        def look() -> float:
            if keeper is not None:
                keeper.look()
            if mirror is not None:
                mirror.look()
            return 0.0 if self._alone else self.vault.turn.stand_aside(running.pause, running.resume)

        return Watch(LOOK, look)

    def _begin(
        self,
        fork: Fork,
        client: Client,
        plan: Plan,
        argv: tuple[bytes, ...],
        env: dict[bytes, bytes],
        descriptors: tuple[int, int, int],
        relay: Relay | None,
        leaf: Leaf | None,
        keeper: Doorkeeper | None,
    ) -> Running:
        """Start the command, after the last one of this fork has let go of its mount. File tools that are in use go
        through the new mount from here on."""
        self._after_the_last(fork)
        edited = fork.name in self._desk
        numbers = relay.numbers if relay is not None else ()
        gate = keeper is not None and keeper.is_inside
        running = client.run(
            plan, argv, env, descriptors, want_view=edited, want_gate=gate, leaf=leaf, terminal=numbers
        )
        if keeper is not None:
            keeper.began(running)
        self._running = self._last[fork.name] = running
        if relay is not None:
            relay.began(running)
        if edited:
            self._desk.go_live(fork.name, running)
        return running

    def _after_the_last(self, fork: Fork) -> None:
        """The last command of this fork has let go of its mount when this returns."""
        before = self._last.pop(fork.name, None)
        if before is not None:
            before.gone()
        if len(self._last) >= MOST_HELD:
            self._let_go()

    def credentials(self) -> tuple[CredentialRule, ...]:
        """What the gate puts into requests of this project's commands; never a value."""
        return load_credentials(self.vault.path)

    def keep_credentials(self, wanted: tuple[CredentialRule, ...]) -> None:
        save_credentials(self.vault.path, wanted)

    def _equipment(self, mode: Mode) -> Equipment | None:
        """What a command needs whose connections may be looked into; None, and nothing loaded, for all others."""
        wanted = has_credentials(self.vault.path)
        if self.settings.network_at(self._grant.level) != "gate" or not (
            wanted or any(rule.inspect for rule in self.settings.hosts)
        ):
            return None
        if self._grant.level == 0:  # mudroom's state is hidden there, with the roots that programs would have to trust
            raise Unsupported("looking into TLS", "level 1", "level 0", "take it out of the policy, or use level 1")
        from mudroom.net.inspection.equipment import equip

        equipment = equip(
            self.vault.path + b"/inspection",
            self.project,
            self.confinement.variables,
            self.confinement.home,
            never=self.settings.never_inspect,
            credentials=self.credentials() if wanted else (),
            mounts=mode not in ELSEWHERE,
        )
        self.vault.journal.conceal(one.value for one in equipment.inspection.credentials)
        return equipment

    def _at_the_gate(
        self, fork: Fork, mode: Mode, relay: Relay | None, equipment: Equipment | None
    ) -> tuple[AbstractContextManager[Doorkeeper | None], int]:
        """Somebody beside the command who lets what it connects to come to the gate, if the policy has one; and the
        port of the host's loopback where that is, if it cannot be in a network of the command's own."""
        gated = self.settings.network_at(self._grant.level) == "gate"
        if not gated or (mode == "landlock" and self.confinement.host.landlock_abi < 4):
            return nullcontext(), 0
        if self._gateway is None:
            from mudroom.gateway import Gateway, upstream_of

            with self._making:
                upstream = upstream_of(self.confinement.variables)
                self._gateway = self._gateway or Gateway(*self._gate_answers, upstream)
        outside = mode in ELSEWHERE or mode == "remote" or self._grant.level == 0
        hush = relay.hushed if relay is not None else nullcontext
        inspection = equipment.inspection if equipment is not None else None
        keeper = self._gateway.keeper(fork.entrance, hush, inspection, lambda: fork.name if fork.state.named else "")
        return keeper, keeper.listen() if outside else 0

    def _flows(self, fork: Fork, keeper: Doorkeeper | None) -> tuple[Flow, ...]:
        """What the command has exchanged with the network, all of it, in the journal, too."""
        if keeper is None:
            return ()
        keeper.close()
        self._notes += keeper.notes
        if not keeper.flows:
            return ()
        from mudroom.core.network.flow import flow_to_json

        told = [("flow", fork.name, flow_to_json(flow)) for flow in keeper.flows]
        try:
            self.vault.journal.append_all(told, time=self._clock())
        except MudroomError as error:
            self._said.unwritten = error
        return tuple(keeper.flows)

    def _write_down(self, kind: str, fork: str, data: dict[str, Any], exit_code: int) -> None:
        """Journal a command that has run, or one that was refused (``verdict``). Raises MudroomError, which says where
        the changes are: they are collected, whatever becomes of the journal."""
        failed, self._said.unwritten = self._said.unwritten, None
        try:
            self.vault.journal.append(kind, fork, data, time=self._clock())
            if failed is not None and kind == "run":
                raise failed
        except MudroomError as error:
            ran = f"has run (exit code {exit_code}), its changes are in the fork {fork}"
            done = ran if kind == "run" else "was refused"
            raise MudroomError(f"the command {done}; {error.message}", error.hint) from error

    def _let_go(self) -> None:
        """Of commands that are over: each holds a descriptor until the next one in its fork."""
        for name, running in list(self._last.items()):
            if running.is_over and self._last.pop(name, None) is not None:
                running.gone()

    def _hold_limits(self, mode: Mode) -> Rlimits:
        """Find out what holds the limits here, and return the rlimits among it. Raises Unsupported."""
        if not needed(self.settings.limits):
            return ()
        if self._grant.level == 2:
            allowed = self._boxes().allowed(self.settings.limits)
            self._notes += [note for note in allowed.notes if note not in self._notes]
            return allowed.rlimits
        if not self.confinement.platform.has_groups:
            unheld = without_groups(self.settings.limits)
            if unheld.missing:
                fix = 'permit to go on without: "limits: {missing: degrade}" in .mudroom/policy.yaml'
                found = f"{self.confinement.platform.name}, which has none"
                raise Unsupported(f"a limit of {unheld.missing}", "control groups", found, fix)
            self._notes += [note for note in unheld.notes if note not in self._notes]
            return unheld.rlimits
        if self._limiter is None:
            from mudroom.sandbox.limits.limiter import Limiter

            vault = os.fsdecode(self.vault.path.rpartition(b"-")[2])
            places = (self.project, self.vault.path)
            limiter = Limiter(vault, self.client.settle, self.confinement.variables, places)
            with self._making:
                self._limiter = self._limiter or limiter
        counts_processes = mode not in ELSEWHERE and os.geteuid() != 0
        held = self._limiter.hold(self.settings.limits, counts_processes=counts_processes)
        self._notes += [note for note in held.notes if note not in self._notes]
        return held.rlimits

    @contextmanager
    def _group(self, fork: Fork) -> Iterator[Leaf | None]:
        """The control group of the next command, if its limits need one; afterwards all that is left in it ends."""
        leaf = self._limiter.leaf() if self._limiter is not None else None
        try:
            yield leaf
        finally:
            if leaf is not None:
                if fork.name in self._last:
                    self._last[fork.name].gone()
                leaf.close()

    def _reached(
        self, group: Leaf | Gauge | None, ended: Exit, out_of: float | None, output: CapturedOutput
    ) -> tuple[tuple[LimitReached, ...], Reading | None]:
        limits, signal = self.settings.limits, ended.status & 0x7F
        cut = self.settings.output_limit if any(stream.truncated for stream in output.streams) else None
        others = reached_else(limits, signal, out_of, cut)
        use = group.reading() if group is not None else None
        if group is None or use is None:
            return others, None
        before, now = group.totals()
        return (*reached(limits, use, difference(now, before)), *others), use

    @contextmanager
    def _at_its_place(self, plan: Plan, fork: Fork) -> Iterator[Client]:
        """Who performs a plan: this process's launcher, or at level 2 one in a container."""
        if self._grant.level < 2:
            yield self.client
            return
        boxes = self._boxes()
        with boxes.lend(plan, self.settings, fork.name, lambda: self.client) as box:
            yield box.client

    def _first_mode(self, fork: Fork) -> tuple[Mode, list[str]]:
        """Where to begin, and what there is to say about it."""
        level = self._grant.level
        if level == 2 and self._boxes().engine.remote:
            self.confinement.mode_contained = "remote"
        elif level == 2 and not self._boxes().engine.nested and self.confinement.mode_contained not in CONTAINERS:
            # sandbox/container/trial.py has tried it: as if it had failed here
            self._weaker("overlay", StepFailed("clone", 1, "a container that was tried could make no user namespace"))
        return self.confinement.first_mode(self.settings, is_copy=fork.is_copy, level=level)

    def _weaker(self, mode: Mode, failure: StepFailed) -> Mode:
        following, lost = self.confinement.weaker(mode, failure, self.settings, self._grant.level)
        self._notes.append(lost)
        self.vault.journal.append("degrade", "", {"to": following, "why": failure.message}, time=self._clock())
        return following

    def _boxes(self) -> Containers:
        if self._containers is None:
            from mudroom.contained import Containers

            with self._making:
                wanted = None if self.settings.engine == "auto" else self.settings.engine
                self._containers = self._containers or Containers(self.vault, self.confinement.variables, wanted)
        return self._containers

    @property
    def client(self) -> Client:
        with self._making:
            if self._client is None:
                self._client = self.confinement.platform.client()
                self._client.start()
            return self._client

    def _meanwhile(self, fork: Fork, view: View) -> None:
        """While the command runs: load what collecting needs, clean up after the command before this one, merge
        layers that have become many, and look for what the overlay could not change."""
        import mudroom.core.command.program.classification
        import mudroom.stage.originals.collection
        import mudroom.vault.journal.journal  # noqa: F401 - loaded for later

        self._keep_journal()
        if isinstance(view, OverlayView):
            view.tidy()
        if len(fork.state.layers) > 1:
            from mudroom.vault.forks.flatten import is_deep, merge_lowest

            self._merged = merge_lowest(self.vault, fork) if is_deep(fork) else None
        if os.geteuid() and not self._looked and isinstance(view, OverlayView):
            self._looked = True
            found = next(foreign(self.project, os.geteuid(), [os.getegid()]), None)
            if found is not None:
                self._notes.append(
                    f"{show(found)} belongs to another user or group: the command cannot change it in the staged view "
                    "(--view copy can)"
                )
