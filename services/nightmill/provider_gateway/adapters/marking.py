"""Where a request says that the beginning which prompts share is to be cached: after the last shared text that can.

A message that is shared in part becomes two parts of text, which the model reads one after the other as before.
"""

from collections.abc import Mapping, Sequence

from nightmill.kernel.domain.prompt import ChatMessage
from nightmill.provider_gateway.adapters.reading import encode


def end_of_shared(messages: Sequence[ChatMessage], roles: Mapping[str, str]) -> int | None:
    """Index of the last message that is shared, at least in part, and may be marked by its role; None: there is none.

    All messages before it are shared wholly.
    """
    found = None
    for index, message in enumerate(messages):
        if not message.shared:
            break
        if message.role in roles:
            found = index
        if message.shared < len(message.content):
            break
    return found


def marked_chat_json(messages: Sequence[ChatMessage], roles: Mapping[str, str], mark: str) -> str | None:
    """Messages as the list that chat APIs take, one of them marked; None where none of them can be.

    `roles` has the type of a text part by each role that can be marked, `mark` is the JSON member that marks a part.
    """
    end = end_of_shared(messages, roles)
    if end is None:
        return None
    chat = [
        f'{{"role":"{message.role}","content":'
        + (parts_json(message, roles[message.role], mark) if index == end else encode(message.content))
        + "}"
        for index, message in enumerate(messages)
    ]
    return f"[{','.join(chat)}]"


def parts_json(message: ChatMessage, kind: str, mark: str) -> str:
    """A message's text as parts of a type, the shared one marked."""
    head, rest = message.content[: message.shared], message.content[message.shared :]
    marked = f'{{"type":"{kind}","text":{encode(head)},{mark}}}'
    return f'[{marked},{{"type":"{kind}","text":{encode(rest)}}}]' if rest else f"[{marked}]"
