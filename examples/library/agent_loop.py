"""An agent loop: a model with the OpenAI chat API works on a project by mudroom's tools, in a fork.

    OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_MODEL=qwen3 python agent_loop.py PROJECT "fix the failing test"

Nothing reaches the project: look at the fork with `mudroom diff`, and bring it over with `mudroom apply`.
"""

import json
import os
import sys
import urllib.request

import mudroom

MOST_TURNS = 50


def ask(messages: list[object], tools: list[object]) -> dict[str, object]:
    body = {"model": os.environ.get("OPENAI_MODEL", "gpt-5"), "messages": messages, "tools": tools}
    request = urllib.request.Request(
        os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"},
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]


def main(project: str, task: str) -> None:
    with mudroom.open(project, agent="loop") as room:
        tools = room.tools("openai")
        messages: list[object] = [{"role": "user", "content": task}]
        for _turn in range(MOST_TURNS):
            message = ask(messages, tools.definitions)
            messages.append(message)
            calls = message.get("tool_calls")
            if not calls:
                print(message["content"])
                break
            messages += [tools.reply(call) for call in calls]
        print(room.changes(tools.fork))
        print(f"mudroom diff {tools.fork}")


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 2 else sys.exit(__doc__)
