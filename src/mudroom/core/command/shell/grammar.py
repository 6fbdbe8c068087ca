"""The bash grammar. It is loaded only when a line has to be parsed: loading takes longer than the rest of the
classification.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

import tree_sitter


@cache
def _language() -> tree_sitter.Language:
    return tree_sitter.Language(_language_entry()())


def _language_entry() -> Callable[[], object]:
    """Return ``tree_sitter_bash.language`` from the package's extension module alone. The package itself imports
    importlib.resources for its queries, and with it tempfile and pathlib, which takes twice as long as the grammar."""
    package = PathFinder.find_spec("tree_sitter_bash")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("tree_sitter_bash._binding", places) if places else None
    if spec is None or spec.loader is None:
        from tree_sitter_bash import language

        return language
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    entry: Callable[[], object] = module.language
    return entry


def tree_of(line: bytes) -> tree_sitter.Node:
    """Return the root node of the line's syntax tree. The tree has ERROR and MISSING nodes where the grammar did not
    match."""
    return tree_sitter.Parser(_language()).parse(line).root_node
