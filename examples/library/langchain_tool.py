"""mudroom's tools for LangChain: give ``langchain_tools(...)`` to an agent or to ``model.bind_tools``.

python langchain_tool.py PROJECT      calls them once, without a model
"""

import sys
from functools import partial

from langchain_core.tools import BaseTool, StructuredTool

import mudroom


def langchain_tools(room: mudroom.Room, fork: str) -> list[BaseTool]:
    tools = room.tools("anthropic", fork=fork)

    def call(name: str, **arguments: object) -> str:
        return tools.call(name, arguments).text

    return [
        StructuredTool.from_function(
            partial(call, row["name"]),
            name=row["name"],
            description=row["description"],
            args_schema=row["input_schema"],
        )
        for row in tools.definitions
    ]


def main(project: str) -> None:
    with mudroom.open(project, agent="langchain") as room:
        tools = {tool.name: tool for tool in langchain_tools(room, "langchain")}
        print(tools["write"].invoke({"path": "hello.txt", "content": "hello\n"}))
        print(tools["bash"].invoke({"command": "cat hello.txt"}))
        print(room.changes("langchain"))


if __name__ == "__main__":
    main(*sys.argv[1:])
