"""Documents that operators write, in YAML 1.2 or JSON, with the line of each value.

JSON is a part of YAML. Only plain values are read: tags, aliases and keys that occur twice are refused, so that a
document says the same to each reader.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from models.text import shown

LARGEST = 1 << 20
"""Most bytes of a document."""

Location: TypeAlias = tuple[str | int, ...]
"""Keys and indices that lead to a value."""

_DEEPEST = 20
_LONGEST_NUMBER = 300
_CORE = "tag:yaml.org,2002:"
# Directives can choose another version of YAML.
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)
# YAML 1.1 reads these in base 8, YAML 1.2 in base 10.
_AMBIGUOUS = re.compile(r"[-+]?0\d+")
_SURROGATES = re.compile("[\ud800-\udfff]")


class DocumentFault(ValueError):
    """A document cannot be read.

    Attributes:
        where: name of the document, with the line where it is known.
        line: number of the line, from 1; 0 if it is not known.
        cause: what is wrong.
        cure: what to do about it.
    """

    def __init__(self, name: str, line: int, cause: str, cure: str) -> None:
        self.where = f"{name}:{line}" if line else name
        self.line, self.cause, self.cure = line, cause, cure
        super().__init__(f"{self.where}: {cause}")


class Document(NamedTuple):
    """A document.

    Attributes:
        name: of the file or option.
        values: its content.
        lines: number of the line of each value, from 1, by location.
    """

    name: str
    values: dict[str, Any]
    lines: dict[Location, int]

    def line_of(self, location: Sequence[str | int]) -> int:
        """Return the line of a value, or of the nearest one above it that the document has."""
        path = tuple(location)
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]


def read_file(path: str) -> Document:
    """Return the content of a file; `-` is standard input.

    Raises:
        DocumentFault: it cannot be read, or is not a document with named values.
    """
    try:
        if path == "-":
            content = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(LARGEST + 1)
    except OSError as error:
        raise DocumentFault(path, 0, error.strerror or str(error), "name a file that can be read") from error
    name = "standard input" if path == "-" else path
    if len(content) > LARGEST:
        raise DocumentFault(name, 0, f"it has more than {LARGEST:,} bytes", "name a file with a plan or a receipt")
    try:
        return read_document(content.decode("utf-8-sig"), name)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DocumentFault(name, line, "it is not a text in UTF-8", "save it in this encoding") from error


def read_document(text: str, name: str) -> Document:
    """Return the content of a text.

    Args:
        text: YAML or JSON.
        name: of its file or option, for messages.

    Raises:
        DocumentFault: it is not a document with named values.
    """
    # Imported here: commands without documents start faster.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    # The library's own types are incomplete.
    yaml: Any = YAML(typ="safe", pure=True)
    if directive := _DIRECTIVE.search(text):
        line = text.count("\n", 0, directive.start()) + 1
        raise DocumentFault(name, line, "it has a directive (`%…`)", "remove this line: documents are YAML 1.2")
    try:
        root = yaml.compose(text)
    # The library raises ValueError for `\U…` above U+10FFFF.
    except (YAMLError, ValueError) as error:
        mark: Any = getattr(error, "problem_mark", None)
        cause = f"it is neither YAML nor JSON: {shown(str(getattr(error, 'problem', None) or error))}"
        raise DocumentFault(
            name, mark.line + 1 if mark else 0, cause, "correct the syntax; indent with spaces"
        ) from error
    except RecursionError as error:
        raise _too_deep(name, 0) from error
    if root is None or root.id != "mapping":
        line = root.start_mark.line + 1 if root else 0
        raise DocumentFault(name, line, "it has no named values", "write them as `name: value`, or a JSON object")
    reader = _Reader(name, yaml.resolver)
    values = reader.value(root, ())
    return Document(name, values, reader.lines)


class _Reader:
    """Turns the nodes of one document into values."""

    def __init__(self, name: str, resolver: Any) -> None:
        self._name = name
        self._resolver = resolver
        self._read: set[int] = set()
        self.lines: dict[Location, int] = {}

    def value(self, node: Any, location: Location) -> Any:
        """Return the value of a node."""
        self.lines.setdefault(location, _line(node))
        if id(node) in self._read:
            raise self._fault(node, "it uses an alias (`*name`)", "write the value again")
        self._read.add(id(node))
        if len(location) > _DEEPEST:
            raise _too_deep(self._name, _line(node))
        if node.id == "mapping":
            return self._mapping(node, location)
        if node.id == "sequence":
            return [self.value(item, (*location, index)) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: Any, location: Location) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, item in node.value:
            if key.id != "scalar" or key.tag != f"{_CORE}str":
                raise self._fault(key, "a name is not a text", "write names as `name: value`")
            name = _text(key.value)
            if name in values:
                first = self.lines[*location, name]
                raise self._fault(key, f"{name} is set again; line {first} sets it too", "remove one of both")
            self.lines[*location, name] = _line(key)
            values[name] = self.value(item, (*location, name))
        return values

    def _scalar(self, node: Any) -> Any:
        text: str = node.value
        is_plain = node.style is None
        if node.tag != self._resolver.resolve(type(node), text, (is_plain, not is_plain)):
            raise self._fault(node, f"it uses the tag {node.tag}", "write the value without a tag")
        match node.tag.removeprefix(_CORE):
            # Models read times themselves, with their zones.
            case "str" | "timestamp":
                return _text(text)
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int" | "float" if "_" in text:
                cause = f"{shown(text)} is read as a number or as a text, depending on the reader"
                raise self._fault(node, cause, "write it without `_`, or in quotes for a text")
            case "int" if len(text) > _LONGEST_NUMBER:
                raise self._fault(node, f"a number has {len(text):,} digits", "correct it")
            case "int":
                if _AMBIGUOUS.fullmatch(text):
                    plain = int(text)
                    cure = f"write {plain}, or {text!r} in quotes for a text"
                    raise self._fault(node, f"{text} is read as {plain} or in base 8, depending on the reader", cure)
                return int(text, 0)
            case "float":
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
            case kind:
                raise self._fault(node, f"{text} is read as {kind} by YAML", "write it in quotes")

    def _fault(self, node: Any, cause: str, cure: str) -> DocumentFault:
        return DocumentFault(self._name, _line(node), cause, cure)


def _line(node: Any) -> int:
    return node.start_mark.line + 1


def _text(text: str) -> str:
    """Return a text with its surrogate pairs joined: JSON writes one character above U+FFFF as two escapes."""
    if not _SURROGATES.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _too_deep(name: str, line: int) -> DocumentFault:
    return DocumentFault(
        name, line, f"its values are nested more than {_DEEPEST} deep", "write a plan as the docs show"
    )
