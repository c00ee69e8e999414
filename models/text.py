"""Text from outside: names that clients chose, reasons of servers, and what anyone may send to a workflow.

It is made harmless where it enters an error or a note (`shown`), and where it leaves: on a terminal or in a log
(`printable`, `printable_json`) and in Markdown (`escape_markdown`, `code_span`).
"""

from __future__ import annotations

import re

LONGEST = 300
"""Characters of a text from outside in an error or a note."""

# Explicit ranges: the tables of Python differ between releases, and workflows are replayed by other ones.
_CONTROL = "\x00-\x09\x0b-\x1f\x7f-\x9f"
# Soft hyphen, joiners, marks of direction, fillers, selectors of variants, tags: they are not seen, or turn the order
# of what follows. Then half characters, which no encoding can write.
_UNSEEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff"
)
_DANGEROUS = re.compile(f"[{_CONTROL}{_UNSEEN}]")
_MARKUP = re.compile(r"[\\`*_\[\]<>|#~!&]|:(?=//)")


def printable(text: str) -> str:
    r"""Return a text without control characters and invisible ones, which become `\xNN` or `\uNNNN`; lines stay."""
    return _DANGEROUS.sub(lambda match: _escaped(match[0]), text)


def printable_json(text: str) -> str:
    """Return the same JSON without control characters and invisible ones, which become JSON's own escapes."""
    return _DANGEROUS.sub(lambda match: _escaped_json(match[0]), text)


def printable_yaml(text: str) -> str:
    """Return the same YAML, whose texts are in double quotes, without control characters and invisible ones."""
    return _DANGEROUS.sub(lambda match: f"\\U{ord(match[0]):08x}", text)


def one_line(text: str) -> str:
    """Return a text as one printable line."""
    return printable(" ".join(text.split()))


def shown(text: str, limit: int = LONGEST) -> str:
    """Return a text from outside as one printable line of at most so many characters."""
    # Only the start is looked at: a text may have megabytes.
    start = text[: 4 * limit]
    line = one_line(start)
    return line if len(line) <= limit and start == text else f"{line[: limit - 1]}…"


def within_bytes(text: str, limit: int) -> str:
    """Return a text, or its start and an ellipsis, in at most so many bytes of UTF-8."""
    encoded = text.encode()
    return text if len(encoded) <= limit else f"{encoded[: limit - 3].decode(errors='ignore')}…"


def short_line(text: str, limit: int = LONGEST) -> str:
    """Return a text from outside as one printable line of at most so many bytes of UTF-8, which a workflow can keep."""
    return within_bytes(shown(text, limit), limit)


def escape_markdown(text: str) -> str:
    """Return a text as one line that Markdown shows as it is: without markup, HTML and links."""
    return _MARKUP.sub(lambda match: f"\\{match[0]}", one_line(text))


def code_span(text: str) -> str:
    """Return a name as code in Markdown, where nothing can be escaped: a backtick becomes an apostrophe."""
    name = one_line(text).replace("`", "'")
    return f"`{name}`"


def _escaped(character: str) -> str:
    code = ord(character)
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\u{code:04x}" if code > 0xFF else f"\\x{code:02x}"


def _escaped_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index : index + 2].hex()}" for index in range(0, len(units), 2))
