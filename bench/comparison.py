"""What got worse since results that were stored before: a pure function of two documents of ``table.to_json``.

Ratios against a rival of the same run are compared, never times: two runs are of two machines, or of two hours. A ratio
is worse only if the one of the medians and the one of the best values both are, each by more than the noise that the
two documents know of: how far the median of ours and of the rival's is from the best value. Of fewer than five values
the whole spread counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bench.measure import RATES

Document = Mapping[str, Any]
"""As ``table.to_json`` makes it."""

QUIET = 0.05
"""The least noise that is assumed."""
_FEW = 5


class Ratio(NamedTuple):
    """What ours costs, over what the rival costs: more is worse, also of rates."""

    what: str
    rival: str
    median: float
    best: float
    noise: float

    @property
    def name(self) -> str:
        return f"{self.what}, over {self.rival}"


class Change(NamedTuple):
    name: str
    before: float
    """The ratio of the medians."""
    now: float
    noise: float


class Comparison(NamedTuple):
    worse: tuple[Change, ...]
    better: tuple[Change, ...]
    same: int
    """Number of ratios that differ by less than the noise."""
    gone: tuple[str, ...]
    """Ratios that were measured before and could not be measured now, with the reason."""


def compare(before: Document, now: Document) -> Comparison:
    """Compare what both documents have. A part that was not run now is not mentioned."""
    old, new, missing = ratios(before), ratios(now), _missing(now)
    worse, better, same = [], [], 0
    for key in old.keys() & new.keys():
        change = _change(old[key], new[key])
        if _is_worse(old[key], new[key], change.noise):
            worse.append(change)
        elif _is_worse(new[key], old[key], change.noise):
            better.append(change)
        else:
            same += 1
    gone = sorted(f"{old[key].name}: {missing[key]}" for key in old.keys() & missing.keys())
    return Comparison(_by_size(worse), _by_size(better), same, tuple(gone))


def ratios(document: Document) -> dict[tuple[str, str, str], Ratio]:
    """Return the ratios of a document by part, what was measured, and rival."""
    found = {}
    for finding in document["findings"]:
        for other in finding["against"]:
            if _is_measured(finding) and _is_measured(other) and finding["unit"] == other["unit"]:
                key = (finding["bench"], finding["what"], other["name"])
                found[key] = _ratio(finding, other)
    return found


def _is_measured(series: Mapping[str, Any]) -> bool:
    """Whether there is something to divide by."""
    return bool(series.get("median") and series.get("min"))


def _ratio(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Ratio:
    edge = "max" if ours["unit"] in RATES else "min"
    median, best = ours["median"] / theirs["median"], ours[edge] / theirs[edge]
    if ours["unit"] in RATES:
        median, best = 1 / median, 1 / best
    return Ratio(ours["what"], theirs["name"], median, best, _noise(ours) + _noise(theirs))


def _noise(series: Mapping[str, Any]) -> float:
    """Return how far from the best value the others are, as a part of it."""
    if not series["min"]:
        return 0.0
    if series["measured"] < _FEW:
        return float(series["max"] / series["min"] - 1)
    if series["unit"] in RATES:
        return float(series["max"] / series["median"] - 1)
    return float(series["median"] / series["min"] - 1)


def _missing(document: Document) -> dict[tuple[str, str, str], str]:
    """Return why a ratio could not be measured."""
    return {
        (finding["bench"], finding["what"], other["name"]): finding.get("missing") or other["missing"]
        for finding in document["findings"]
        for other in finding["against"]
        if "missing" in finding or "missing" in other
    }


def _change(before: Ratio, now: Ratio) -> Change:
    return Change(before.name, before.median, now.median, max(QUIET, before.noise, now.noise))


def _is_worse(before: Ratio, now: Ratio, noise: float) -> bool:
    return now.median > before.median * (1 + noise) and now.best > before.best * (1 + noise)


def _by_size(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: (-abs(change.now / change.before - 1), change.name)))


def told(comparison: Comparison, before: Document) -> Iterator[str]:
    """Yield the comparison in lines."""
    machine = before["machine"]
    yield f"compared with {machine['commit']} of {machine['date']}, measured as {machine['user']}:"
    for title, changes in (("worse", comparison.worse), ("better", comparison.better)):
        for change in changes:
            yield f"  {title:<7} {change.name}: {change.before:.2f}x -> {change.now:.2f}x (noise {change.noise:.0%})"
    for gone in comparison.gone:
        yield f"  missing {gone}"
    yield f"  {len(comparison.worse)} worse, {len(comparison.better)} better, {comparison.same} the same"


def merged(before: Document | None, now: Document) -> dict[str, Any]:
    """Return the document to store: the findings of this run, and those of parts that it had no findings for. Each
    finding has the commit and date of its run."""
    origin = {name: now["machine"][name] for name in ("commit", "date")}
    fresh = [{**finding, **origin} for finding in now["findings"]]
    measured = {_name(finding) for finding in fresh}
    kept: Sequence[Any] = before["findings"] if before is not None else ()
    return {**now, "findings": [*(finding for finding in kept if _name(finding) not in measured), *fresh]}


def _name(finding: Mapping[str, Any]) -> tuple[str, str]:
    return finding["bench"], finding["what"]


def kind_of(machine: Mapping[str, str]) -> str:
    """Return a name for machines of one kind: processors and file system, as a file name."""
    words = f"{machine['processors']} {machine['file system']}"
    return re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")[:100]
