"""Findings as a table for people and as JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bench.measure import Against, Budget, Finding, Series

SCHEMA = "mudroom.bench/2"
_WIDTHS = (48, 9, 17, 8, 24)


def header(facts: Mapping[str, str]) -> Iterator[str]:
    for name, value in facts.items():
        yield f"{name:<12} {value}"
    yield ""
    yield _line("", "median", "min..max", "ratio", "budget", "")


def lines(finding: Finding) -> Iterator[str]:
    """One line for what was measured, an indented one for each alternative."""
    if finding.ours.values:
        yield _line(finding.what, *_numbers(finding.ours), "", _text(finding.budget), _said(finding.met()))
    else:
        yield f"{finding.what:<{_WIDTHS[0]}} not measured: {finding.why}"
    for other in finding.others:
        if not finding.compares(other):
            yield f"{'    ' + other.name:<{_WIDTHS[0]}} not measured: {other.why or finding.why}"
            continue
        ratio = f"{_number(finding.ratio(other))}x"
        met = _said(finding.met_against(other))
        yield _line("    " + other.name, *_numbers(other.series), ratio, _text(other.budget), met)


def markdown(findings: Iterable[Finding]) -> Iterator[str]:
    """The findings as docs/evidence/SPEED.md has them: a row for each rival with a budget, bold where it is missed."""
    yield "| what | mudroom | against | ratio: median, best | goal |"
    yield "| --- | --- | --- | --- | --- |"
    for finding in findings:
        if not finding.ours.values:
            yield f"| {finding.what} | not measured: {finding.why} | | | |"
            continue
        ours = _numbers(finding.ours)[0]
        if finding.budget is not None:
            yield f"| {finding.what} | {_bold(ours, finding.met())} | | | {finding.budget.text} |"
        for other in finding.others:
            goal = _text(other.budget)
            if finding.compares(other):
                ratio = _bold(f"{_number(finding.ratio(other))}x", finding.met_against(other))
                theirs, best = _numbers(other.series)[0], f"{_number(finding.best_ratio(other))}x"
                yield f"| {finding.what} | {ours} | {other.name} {theirs} | {ratio}, {best} | {goal} |"
            else:
                yield f"| {finding.what} | {ours} | {other.name}: not measured, {other.why} | | {goal} |"


def _bold(text: str, met: bool | None) -> str:
    return f"**{text}**" if met is False else text


def summary(findings: Iterable[Finding]) -> str:
    verdicts = [met for finding in findings for met in _verdicts(finding) if met is not None]
    return f"{verdicts.count(True)} of {len(verdicts)} budgets met"


def to_json(facts: Mapping[str, str], quick: bool, findings: Iterable[Finding]) -> dict[str, Any]:
    return {"schema": SCHEMA, "quick": quick, "machine": dict(facts), "findings": [_finding(one) for one in findings]}


def json_text(document: Mapping[str, Any]) -> str:
    """Return the document with a line for each finding."""
    head = json.dumps({key: value for key, value in document.items() if key != "findings"}, indent=1)
    findings = ",\n  ".join(json.dumps(finding) for finding in document["findings"])
    return f'{head[:-2]},\n "findings": [\n  {findings}\n ]\n}}\n'


def _finding(finding: Finding) -> dict[str, Any]:
    budget = _budget(finding.budget, finding.met())
    return {
        "bench": finding.bench,
        "what": finding.what,
        **_series(finding.ours, finding.why),
        "budget": budget,
        "against": [_other(finding, other) for other in finding.others],
    }


def _other(finding: Finding, other: Against) -> dict[str, Any]:
    budget = _budget(other.budget, finding.met_against(other))
    row = {"name": other.name, **_series(other.series, other.why or finding.why), "budget": budget}
    if finding.compares(other):
        row |= {"ratio": round(finding.ratio(other), 4), "best_ratio": round(finding.best_ratio(other), 4)}
    return row


def _series(series: Series, why: str) -> dict[str, Any]:
    values = series.values
    if not values:
        return {"missing": why}
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
