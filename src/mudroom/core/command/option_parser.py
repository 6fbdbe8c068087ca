"""Parser for a command's words: options with their values, and operands, according to a grammar.

Rules of this file:

1. A word is an option, a value or an operand only if the grammar proves it. For every option, ``sure`` tells whether
   all words before it are proven: an option that makes a program only read counts only then.
2. An option that the grammar does not list, or an ambiguous abbreviation, ends the proof: it may take the next word.
   The words after it are read as if it took none, so that an option that matters is still found.
3. A word that is unknown before the command runs may be an option, or several words. It ends the proof if it may begin
   with a dash.

Sources: getopt_long(3); the documents of argparse, click, clap, pflag, nopt and Go's package flag.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.option_grammar import Grammar, Option
from mudroom.core.command.word import Word
from mudroom.typing import NamedTuple


class GivenOption(NamedTuple):
    option: Option
    value: Word | None = None
    sure: bool = True
    negated: bool = False
    """Whether it is cancelled: ``--no-NAME``, ``-name=false``."""


class ParsedCommand(NamedTuple):
    given: tuple[GivenOption, ...] = ()
    operands: tuple[Word, ...] = ()
    unlisted: bytes = b""
    """The first word that is an unlisted option, or an ambiguous abbreviation."""
    is_open: bool = False
    """Whether a word that is unknown before the command runs may be an option."""
    rest: int = 0
    """Index of the first operand; the number of words if there is none."""

    def has(self, *names: bytes) -> bool:
        return any(not given.negated and not set(given.option.names).isdisjoint(names) for given in self.given)

    def proves(self, *names: bytes) -> bool:
        """Return whether one of these options is certainly given, and none is cancelled."""
        last = [given for given in self.given if not set(given.option.names).isdisjoint(names)]
        return any(given.sure for given in last) and not any(given.negated for given in last)

    def values(self, *names: bytes) -> list[Word]:
        """Return these options' values, in order."""
        named = (given for given in self.given if not set(given.option.names).isdisjoint(names))
        return [given.value for given in named if given.value is not None]


def parse(words: Sequence[Word], grammar: Grammar) -> ParsedCommand:
    """Return the options and operands among the words after a program's name."""
    reader = _WordReader(words, grammar)
    reader.run()
    operands = (*reader.operands, *words[reader.at :])
    return ParsedCommand(tuple(reader.given), operands, reader.unlisted, reader.is_open, reader.rest)


class _WordReader:
    """Owner: one call of ``parse``."""

    def __init__(self, words: Sequence[Word], grammar: Grammar) -> None:
        self.words = words
        self.grammar = grammar
        self.style = grammar.style
        self.at = 0
        self.given: list[GivenOption] = []
        self.operands: list[Word] = []
        self.unlisted = b""
        self.is_open = False
        self.rest = len(words)

    def run(self) -> None:
        if self.grammar.response:
            self.unlisted = next((word.text for word in self.words if word.start.startswith(b"@")), b"")
        while self.at < len(self.words):
            word = self.words[self.at]
            self.at += 1
            if word.literal and word.text == b"--" and not self.style.is_word:
                self.rest = min(self.rest, self.at)
                return
            if not word.start.startswith(b"-") or (word.literal and word.text == b"-"):
                self.is_open = self.is_open or word.is_several or (not word.literal and word.may_be_option)
                self.rest = min(self.rest, self.at - 1)
                self.operands.append(word)
                if not self.style.permutes:
                    return
            else:
                self.option(word)

    def option(self, word: Word) -> None:
        text = word.start
        sure = not self.unlisted and not self.is_open
        if text.startswith(b"--") or not self.style.clusters:
            self.whole(word, sure)
        elif text in self.grammar.options and len(text) > 2 and word.literal:
            self.add(self.grammar.options[text], word, len(text), sure)
        elif b"-NUM" in self.grammar.options and text[1:].isdigit() and word.literal:
            self.given.append(GivenOption(self.grammar.options[b"-NUM"], Word(text[1:]), sure))
        else:
            self.letters(word, sure)

    def whole(self, word: Word, sure: bool) -> None:
        """Read a word that is a single option: ``--name``, ``--name=value``."""
        text = word.start
        head, sign, value = text.partition(b"=")
        found, negated = self.look_up(head)
        if found is None and self.style.is_word:
            found = self.longest(text)
            if found is not None:
                self.given.append(GivenOption(found, _behind(word, max(map(len, found.names))), sure))
                return
        if found is None:
            self.unlisted = self.unlisted or text
            return
        if not sign and not word.literal:
            self.is_open = True
            return
        if sign and found.value == "none":
            negated = negated or value in (b"false", b"0", b"no")
            self.given.append(GivenOption(found, None, sure and self.style.joined_equals, negated))
        elif sign:
            self.given.append(GivenOption(found, _behind(word, len(head) + 1), sure, negated))
            self.is_open = self.is_open or word.is_several
        elif negated:
            self.given.append(GivenOption(found, None, sure, True))
        else:
            self.add(found, word, len(text), sure)

    def letters(self, word: Word, sure: bool) -> None:
        text = word.start
        for at in range(1, len(text)):
            found = self.grammar.options.get(b"-" + text[at : at + 1])
            if found is None:
                self.unlisted = self.unlisted or text
            elif found.value == "none":
                self.given.append(GivenOption(found, None, sure))
            else:
                self.add(found, word, at + 1, sure)
                return
        self.is_open = self.is_open or not word.literal

    def add(self, found: Option, word: Word, end: int, sure: bool) -> None:
        """Add an option, whose name ends at index ``end`` of its word, and its value."""
        if end < len(word.start) or not word.literal:
            end += self.style.joined_equals and word.start[end : end + 1] == b"="
            self.given.append(GivenOption(found, _behind(word, end), sure))
            self.is_open = self.is_open or word.is_several
            return
        if found.value in ("none", "optional"):
            self.given.append(GivenOption(found, None, sure))
            return
        values = self.taken(found)
        self.is_open = self.is_open or any(value.is_several or value.kind == "pattern" for value in values)
        missing = not values and found.value == "required"
        if missing or (self.style.mixes and values and values[0].start.startswith(b"-")):
            self.unlisted = self.unlisted or word.text
            values = ()
        self.given.extend(GivenOption(found, value, sure) for value in values or (None,))
        self.at += len(values)

    def taken(self, found: Option) -> Sequence[Word]:
        """Return the next words, as far as they are this option's values."""
        if found.value in ("required", "pair"):
            return self.words[self.at : self.at + (1 if found.value == "required" else 2)]
        end = self.at
        while end < len(self.words) and (found.value == "rest" or not self.words[end].start.startswith(b"-")):
            end += 1
        return self.words[self.at : end]

    def look_up(self, name: bytes) -> tuple[Option | None, bool]:
        """Return the option with this name or unambiguous abbreviation, and whether it is cancelled."""
        options = self.grammar.options
        if self.style.one_dash and name not in options:
            name = name[1:] if name.startswith(b"--") else b"-" + name
        if name in options:
            return options[name], False
        if self.style.negates:
            opposite = b"--" + name[5:] if name.startswith(b"--no-") else b"--no-" + name[2:]
            if opposite in options:
                return options[opposite], True
        if not self.style.abbreviates or not name.startswith(b"--") or len(name) < 3:
            return None, False
        meant = {(options[full], False) for full in options if full.startswith(name)}
        if self.style.negates and name.startswith(b"--no-"):
            meant |= {(options[full], True) for full in options if full.startswith(b"--" + name[5:])}
        return meant.pop() if len(meant) == 1 else (None, False)

    def longest(self, text: bytes) -> Option | None:
        """Return the option with the longest name that begins the word and takes an attached value."""
        for end in range(len(text) - 1, 1, -1):
            found = self.grammar.options.get(text[:end])
            attached = found is not None and (
                found.value == "optional" or (found.value == "required" and self.style.joins)
            )
            if attached:
                return found
        return None


def _behind(word: Word, cut: int) -> Word:
    return word._replace(text=word.text[cut:], fixed=max(0, word.fixed - cut))
