"""The grammar of bash, loaded when a line has to be read: not before, it costs more than everything else here."""

from __future__ import annotations

from functools import cache

import tree_sitter
from tree_sitter_bash import language


@cache
def _language() -> tree_sitter.Language:
    return tree_sitter.Language(language())


def tree_of(line: bytes) -> tree_sitter.Node:
    """The root of the line's tree. Trees hold ERROR and MISSING nodes where the grammar did not fit."""
    return tree_sitter.Parser(_language()).parse(line).root_node
