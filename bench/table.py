"""Findings as a table for people and as JSON for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bench.measure import Budget, Finding, Series

SCHEMA = "mudroom.bench/1"
_WIDTHS = (48, 9, 17, 8, 24)


def header(facts: Mapping[str, str]) -> Iterator[str]:
    for name, value in facts.items():
        yield f"{name:<12} {value}"
    yield ""
    yield _line("", "median", "min..max", "ratio", "budget", "")


def lines(finding: Finding) -> Iterator[str]:
    """One line for what was measured, an indented one for each alternative."""
    yield _line(finding.what, *_numbers(finding.ours), "", _text(finding.budget), _said(finding.met()))
    for other in finding.others:
        ratio = f"{_number(finding.ratio(other))}x"
        met = _said(finding.met_against(other))
        yield _line("    " + other.name, *_numbers(other.series), ratio, _text(other.budget), met)


def summary(findings: Iterable[Finding]) -> str:
    verdicts = [met for finding in findings for met in _verdicts(finding) if met is not None]
    return f"{verdicts.count(True)} of {len(verdicts)} budgets met"


def to_json(facts: Mapping[str, str], quick: bool, findings: Iterable[Finding]) -> dict[str, Any]:
    return {"schema": SCHEMA, "quick": quick, "machine": dict(facts), "findings": [_finding(one) for one in findings]}


def _finding(finding: Finding) -> dict[str, Any]:
    others = [
        {
            "name": other.name,
            **_series(other.series),
            "ratio": round(finding.ratio(other), 4),
            "budget": _budget(other.budget, finding.met_against(other)),
        }
        for other in finding.others
    ]
    budget = _budget(finding.budget, finding.met())
    return {
        "bench": finding.bench,
        "what": finding.what,
        **_series(finding.ours),
        "budget": budget,
        "against": others,
    }


def _series(series: Series) -> dict[str, Any]:
    values = series.values
    return {
        "unit": series.unit,
        "median": series.median,
        "min": min(values),
        "max": max(values),
        "measured": len(values),
    }


def _budget(budget: Budget | None, met: bool | None) -> dict[str, Any] | None:
    return None if budget is None else {"text": budget.text, "met": met}


def _verdicts(finding: Finding) -> list[bool | None]:
    return [finding.met(), *(finding.met_against(other) for other in finding.others)]


def _line(what: str, median: str, spread: str, ratio: str, budget: str, met: str) -> str:
    a, b, c, d, e = _WIDTHS
    return f"{what:<{a}} {median:>{b}}  {spread:<{c}} {ratio:>{d}}  {budget:<{e}} {met}".rstrip()


def _numbers(series: Series) -> tuple[str, str]:
    factor, unit = _scale(series.median, series.unit)
    low, high = (_number(edge(series.values) * factor) for edge in (min, max))
    return f"{_number(series.median * factor)} {unit}", f"{low}..{high}" if len(series.values) > 1 else ""


def _scale(value: float, unit: str) -> tuple[float, str]:
    if unit != "s":
        return 1, unit
    if value >= 1:
        return 1, "s"
    return (1e3, "ms") if value >= 1e-3 else (1e6, "µs")


def _number(value: float) -> str:
    return (
        f"{value:.0f}"
        if value >= 100
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
        if value >= 0.1
        else f"{value:.2g}"
    )


def _text(budget: Budget | None) -> str:
    return "" if budget is None else budget.text


def _said(met: bool | None) -> str:
    return "" if met is None else "met" if met else "NOT MET"
