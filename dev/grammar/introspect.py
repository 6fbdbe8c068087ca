"""Print the options of a Python program: its parser of argparse, optparse or click is asked instead of run.

``introspect.py SCRIPT [WORD…]`` runs the console script with these words until it parses them. The output has the same
columns as that of dump_options.c, with the names of an option in one row.
"""

from __future__ import annotations

import argparse
import optparse
import os
import runpy
import sys
from collections.abc import Iterable


def row(names: Iterable[str], value: str, shown: object, text: object) -> None:
    one_line = " ".join(f"{shown or ''} {text or ''}".split())
    print("option", ",".join(names), value or "0", one_line, sep="\t")


def of_argparse(parser: argparse.ArgumentParser, path: str = "") -> None:
    print("command", path, "argparse" + ("@" if parser.fromfile_prefix_chars else ""), sep="\t")
    if not parser.allow_abbrev:
        print("command", path, "click", sep="\t")
    inner: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner = list(action.choices.items())
        if not action.option_strings:
            continue
        many = action.nargs in ("*", "+", argparse.REMAINDER) or (isinstance(action.nargs, int) and action.nargs > 1)
        value = "+" if many or action.nargs == "?" else "" if action.nargs == 0 else "="
        text = "" if action.help is argparse.SUPPRESS else action.help
        row(action.option_strings, value, action.metavar or action.dest, text)
    for name, child in inner:
        of_argparse(child, f"{path} {name}".strip())


def of_optparse(parser: optparse.OptionParser, path: str = "") -> None:
    print("command", path, "gnu", sep="\t")
    for option in parser.option_list_all if hasattr(parser, "option_list_all") else _all(parser):
        names = [*option._short_opts, *option._long_opts]
        row(names, "=" if option.takes_value() else "", option.metavar or option.dest, option.help)


def _all(parser: optparse.OptionParser) -> list[optparse.Option]:
    return [*parser.option_list, *(option for group in parser.option_groups for option in group.option_list)]


def of_click(command: object, path: str = "") -> None:
    print("command", path, "click", sep="\t")
    row(["-h", "--help"], "", "", "")
    for parameter in command.params:  # type: ignore[attr-defined]
        if parameter.param_type_name != "option":
            continue
        names = [*parameter.opts, *parameter.secondary_opts]
        row(names, "" if parameter.is_flag or parameter.count else "=", parameter.name, parameter.help)
    for name, child in getattr(command, "commands", {}).items():
        of_click(child, f"{path} {name}".strip())


def finish(function, *arguments) -> None:  # type: ignore[no-untyped-def]
    function(*arguments)
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    script, words = sys.argv[1], sys.argv[2:]
    if os.path.basename(script) == "pip":
        from pip._internal.cli.main_parser import create_main_parser
        from pip._internal.commands import commands_dict, create_command

        of_optparse(create_main_parser())
        for name in commands_dict:
            of_optparse(create_command(name).parser, name)
        return
    argparse.ArgumentParser.parse_known_args = lambda self, *_a, **_k: finish(of_argparse, self)  # type: ignore[method-assign,assignment]
    argparse.ArgumentParser.parse_args = lambda self, *_a, **_k: finish(of_argparse, self)  # type: ignore[method-assign,assignment]
    optparse.OptionParser.parse_args = lambda self, *_a, **_k: finish(of_optparse, self)  # type: ignore[method-assign]
    try:
        import click
    except ImportError:
        pass
    else:
        click.Command.main = lambda self, *_a, **_k: finish(of_click, self)  # type: ignore[method-assign,assignment]
    sys.argv = [script, *words]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
