"""The project that the agent of the transcript works on: a small program with tests and a history."""

from __future__ import annotations

import subprocess
from pathlib import Path

FILES = {
    "ledger/__init__.py": "",
    "ledger/account.py": '''\
"""Accounts and what was paid into them."""


class Account:
    def __init__(self, name):
        self.name = name
        self.entries = []

    def pay(self, amount, note=""):
        self.entries.append((amount, note))

    def balance(self):
        return sum(amount for amount, _note in self.entries)
''',
    "ledger/report.py": '''\
"""Reports: how much is in which account."""

from ledger.account import Account


def total(accounts):
    return sum(account.balance() for account in accounts)


def as_text(accounts):
    lines = [f"{account.name:<12}{account.balance():>8}" for account in accounts]
    return "\\n".join([*lines, f"{'total':<12}{total(accounts):>8}"])


def as_csv(accounts):
    rows = ["name,balance"] + [f"{account.name},{account.balance()}" for account in accounts]
    return "\\n".join(rows)


def example():
    account = Account("cash")
    account.pay(5)
    return as_text([account])
''',
    "tests/test_ledger.py": """\
import unittest

from ledger.account import Account
from ledger.report import as_csv, as_text, total


class Reports(unittest.TestCase):
    def setUp(self):
        self.cash, self.bank = Account("cash"), Account("bank")
        self.cash.pay(5, "found")
        self.bank.pay(20)

    def test_total(self):
        self.assertEqual(total([self.cash, self.bank]), 25)

    def test_text(self):
        self.assertIn("total             25", as_text([self.cash, self.bank]))

    def test_csv(self):
        self.assertEqual(as_csv([self.cash]), "name,balance\\ncash,5")
""",
    "README.md": "# ledger\n\nReports are in `ledger.report`.\n",
    ".gitignore": "__pycache__/\n",
    ".mudroom/policy.yaml": """\
commands:
  rules:
    - pattern: git push
      action: deny
      reason: agents do not publish
      instead: mudroom apply --commits, by a person
      match: [git push origin main]
    - pattern: git tag
      action: require_approval
      reason: releases are ours
      match: [git tag v2]
""",
}


def make_project(place: Path) -> None:
    for name, content in FILES.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    git = ["git", "-C", str(place), "-c", "user.name=Owner", "-c", "user.email=owner@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "A ledger with reports"]):
        subprocess.run([*git, *words], check=True, env={"PATH": "/usr/bin:/bin", "HOME": str(place.parent)})
