"""The grammars of programs: all of them can be read, and the rules of the tables use names that they have."""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.core.command.option_catalogue import grammar_of, packed_grammars, same_options
from mudroom.core.command.option_parser import parse
from mudroom.core.command.program.classification import TABLES
from mudroom.core.command.program.git import SUBCOMMANDS
from mudroom.core.command.table_rule import ProgramRule
from mudroom.core.command.word import Word, literal_words

NOT_IN_THE_DATA = {
    "--hostname-bin", "-plugin", "--on-download-complete", "--conf-path", "--dir", "-o", "--output", "--vacuum-size",
    "--vacuum-time", "--rotate", "--flush", "--receive-pack", "--exec", "-u", "--filters", "--fix", "--in-place",
    "--write-back", "-df", "-dw", "-dr", "-A",
}  # fmt: skip
"""Options of rules that programs without a grammar share, or that come with versions newer than the data."""


def test_every_grammar_can_be_read() -> None:
    for program in packed_grammars():
        grammar = grammar_of(program)
        if b"~" in program:
            continue
        assert grammar is not None, program
        for name, option in grammar.options.items():
            assert name.startswith((b"-", b"+")) or program == b"ps", (program, name)
            assert name in option.names
    for alias, program in same_options().items():
        assert grammar_of(alias) == grammar_of(program) or grammar_of(alias) is not None, alias


def rules() -> Iterator[tuple[bytes, ProgramRule]]:
    def walk(path: bytes, rule: ProgramRule) -> Iterator[tuple[bytes, ProgramRule]]:
        yield path, rule
        for verb, inner in (rule.subcommands or {}).items():
            yield from walk(path + b" " + verb, inner)

    for table in (*TABLES, {b"git " + name: rule for name, rule in SUBCOMMANDS.items()}):
        for name, rule in table.items():
            yield from walk(name, rule)


def test_options_that_soften_are_options_of_their_programs() -> None:
    for program, rule in rules():
        grammar = grammar_of(program)
        if grammar is not None and rule.softened:
            assert any(name in grammar.options for name in rule.softened), program


def test_an_option_of_a_rule_is_known_to_one_of_its_programs() -> None:
    known: dict[tuple[int, bytes], bool] = {}
    for program, rule in rules():
        grammar = grammar_of(program)
        for option in rule.options if grammar is not None else ():
            for name in option.names:
                if name.startswith(b"-") and grammar is not None:
                    key = (id(option), name)
                    known[key] = known.get(key, False) or name in grammar.options
    missing = {name.decode() for (_rule, name), is_known in known.items() if not is_known}
    assert missing <= NOT_IN_THE_DATA


def test_words_that_are_not_known_end_the_proof() -> None:
    grammar = grammar_of(b"git clean")
    assert grammar is not None
    dry = parse(literal_words([b"-fd", b"-n"]), grammar)
    assert dry.proves(b"-n")
    assert dry.has(b"--force")
    for word in (Word(b"$x", "computed", 0, True), Word(b"*", "pattern"), Word(b"-e$x", "computed", 2, True)):
        assert not parse((word, Word(b"-n")), grammar).proves(b"-n"), word
    assert parse((Word(b"src/*", "pattern", 4), Word(b"-n")), grammar).proves(b"-n")
    assert parse((Word(b"-e"), Word(b"$x", "computed"), Word(b"-n")), grammar).proves(b"-n"), "one word, in quotes"
    assert not parse((Word(b"-e"), Word(b"$x", "computed", 0, True), Word(b"-n")), grammar).proves(b"-n")
