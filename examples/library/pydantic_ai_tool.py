"""mudroom's tools for Pydantic AI: ``Agent(model, tools=pydantic_ai_tools(...))``.

python pydantic_ai_tool.py PROJECT      an agent with a scripted model, so that no key is needed
"""

import asyncio
import sys

from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import mudroom


def pydantic_ai_tools(room: mudroom.AsyncRoom, fork: str) -> list[Tool]:
    tools = room.tools("anthropic", fork=fork)

    def tool(row: dict) -> Tool:
        async def call(**arguments: object) -> str:
            return (await tools.call(row["name"], arguments)).text

        return Tool.from_schema(call, row["name"], row["description"], row["input_schema"])

    return [tool(row) for row in tools.definitions]


def scripted(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Write a file, look at it, and say what was there."""
    returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not returned:
        return ModelResponse([ToolCallPart("write", {"path": "hello.txt", "content": "hello\n"})])
    if len(returned) == 1:
        return ModelResponse([ToolCallPart("bash", {"command": "cat hello.txt"})])
    return ModelResponse([TextPart(f"the file says: {returned[-1].content}")])


async def main(project: str) -> None:
    async with mudroom.aopen(project, agent="pydantic-ai") as room:
        agent = Agent(FunctionModel(scripted), tools=pydantic_ai_tools(room, "pydantic-ai"))
        print((await agent.run("greet")).output)
        print(await room.changes("pydantic-ai"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
