"""Plan files: what they may contain, and how mistakes in them are reported."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, reject
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from cli.app import run
from cli.documents import LARGEST, DocumentFault, read_document, read_file
from cli.plan_files import plan_schema
from models.field_texts import INTERNAL
from process.exit_codes import ExitCode
from worker.catalog import ALL, Registered

PLAN = """\
# yaml-language-server: $schema=metadata-store.json
kind: metadata-store
cluster: prod
source: zk:zk-1:2181/pulsar
target: oxia://oxia:6648/default
validation_window: 2h
"""
# YAML folds the other line breaks of Unicode, and refuses control characters, U+FFFE and U+FFFF.
_TEXT = st.text(st.characters(exclude_categories=["Cc", "Zl", "Zp", "Cs"], exclude_characters="\ufeff\ufffe\uffff"))
_NAMES = _TEXT.map(lambda name: f"a{name}"[:20])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=10,
)
_DOCUMENTS = st.dictionaries(_NAMES, _VALUES, max_size=4)


@given(values=_DOCUMENTS, ascii_only=st.booleans(), indent=st.none() | st.just(2) | st.just("\t"))
def test_json_is_read_as_json(values: dict[str, Any], ascii_only: bool, indent: int | str | None) -> None:
    """A plan in JSON has the values that JSON gives it, however it is written."""
    assert read_document(json.dumps(values, ensure_ascii=ascii_only, indent=indent), "x").values == values


@example(values={"a": {"a": ":0"}})
@given(values=_DOCUMENTS)
def test_yaml_is_read_as_it_was_meant(values: dict[str, Any]) -> None:
    """A plan that a YAML 1.2 library wrote has the same values here."""
    stream = io.StringIO()
    yaml: Any = YAML(typ="safe", pure=True)
    yaml.allow_unicode, yaml.width = True, 1_000
    yaml.dump(values, stream)
    text = stream.getvalue()
    # The library forgets to quote some texts, such as `?A` and `:0`, and then does not read what it wrote.
    try:
        assume(yaml.load(text) == values)
    except YAMLError:
        reject()
    assert read_document(text, "x").values == values


def test_traps_of_yaml() -> None:
    """`no` is a text, as YAML 1.2 says, and a time stays as it is written."""
    values = read_document("a: no\nb: 0o17\nc: 2030-01-31T02:00:00Z\nd: ~\ne: 12:30:00\n", "x").values
    assert values == {"a": "no", "b": 15, "c": "2030-01-31T02:00:00Z", "d": None, "e": "12:30:00"}


@pytest.mark.parametrize(
    ("text", "line", "named"),
    [
        ("a: 1\nb: 2\na: 3", 3, "a is set again; line 1 sets it too"),
        ('{"a": {"b": 1,\n"b": 2}}', 2, "b is set again"),
        ("a: 1\nb: 017", 2, "017 is read as 17 or in base 8"),
        ("a: 1\nb: 1_000", 2, "1_000 is read as a number or as a text"),
        ("a: 1\nb: 1__0", 2, "a number or as a text"),
        ("a: ._5", 1, "a number or as a text"),
        ("a: 0_17", 1, "a number or as a text"),
        ("a: 1\nb: " + "9" * 5_000, 2, "a number has 5,000 digits"),
        ("a: 0x" + "f" * 5_000, 1, "a number has 5,002 digits"),
        ('a: "\\U00110000"', 0, "neither YAML nor JSON"),
        ("a: &x [1]\nb: *x", 1, "alias"),
        ("a: &x [*x]", 1, "alias"),
        ("a: 1\nb: !!python/object:os.system x", 2, "the tag"),
        ("a: !!bool x", 1, "the tag"),
        ("%YAML 1.1\n---\na: no", 1, "directive"),
        ("a: 1\n---\nb: 2", 2, "neither YAML nor JSON"),
        ("a: 1\n\tb: 2", 2, "neither YAML nor JSON"),
        ("a: [1\n", 2, "neither YAML nor JSON"),
        ("1: 2", 1, "a name is not a text"),
        ("<<: {a: 1}", 1, "a name is not a text"),
        ("- 1", 1, "no named values"),
        ("", 0, "no named values"),
        ("a: " + "[" * 30 + "]" * 30, 1, "nested"),
        ("a: " + "[" * 100_000, 0, "nested"),
    ],
)
def test_a_document_that_readers_could_take_differently_is_refused(text: str, line: int, named: str) -> None:
    """A document says the same to each reader, and a refusal names the line."""
    with pytest.raises(DocumentFault, match=named) as fault:
        read_document(text, "plan.yaml")
    assert fault.value.line == line
    assert fault.value.cure


def test_a_file_has_a_limit_and_an_encoding(tmp_path: Path) -> None:
    """A file that is too large, or not in UTF-8, is refused before it is parsed."""
    large, latin = tmp_path / "large.yaml", tmp_path / "latin.yaml"
    large.write_bytes(b"#" * (LARGEST + 1))
    latin.write_bytes(b"a: 1\nb: \xe4\n")
    with pytest.raises(DocumentFault, match="more than 1,048,576 bytes"):
        read_file(str(large))
    with pytest.raises(DocumentFault, match=r"latin\.yaml:2: it is not a text in UTF-8"):
        read_file(str(latin))


def test_a_valid_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`validate` says which migration a plan starts."""
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    assert run(["validate", str(file)]) == ExitCode.OK
    assert f"{file}: valid: metadata-store/prod (prod: zk:zk-1:2181/pulsar" in capsys.readouterr().out


def test_each_mistake_has_a_line_and_a_cure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`validate` prints one line for each mistake: file, line, field, cause and cure, in the order of the file."""
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN.replace("target:", "taget:").replace("2h", "2") + "dry_run: no\n")
    assert run(["validate", str(file)]) == ExitCode.USAGE
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert [line.partition(". cure: ")[0] for line in lines] == [
        f"error: {file}:2: target: this field is needed",
        f"error: {file}:5: taget: there is no such field",
        f"error: {file}:6: validation_window: 2 has no unit; write 90s, 30m, 24h, 2d or PT24H",
        f"error: {file}:7: dry_run: 'no' is neither true nor false; write one of these, without quotes",
    ]
    assert lines[1].endswith("cure: write target")
    assert printed.out == ""
    run(["validate", str(file), "-o", "json"])
    [result] = json.loads(capsys.readouterr().out)
    assert [fault["field"] for fault in result["faults"]] == ["target", "taget", "validation_window", "dry_run"]


@pytest.mark.parametrize("line", ["", "kind: x\n"])
def test_a_plan_names_its_kind(tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan without a kind, or with one that does not exist, cannot start alone; the kinds are listed."""
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN.replace("kind: metadata-store\n", line))
    for command in (["validate", str(file)], ["start", "-f", str(file)], ["start", str(file)]):
        assert run(command) == ExitCode.USAGE
        assert "cure: write `kind: ` and one of metadata-store, " in capsys.readouterr().err


def test_commands_take_the_kind_from_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`start FILE` and `start -f FILE` are `start KIND --input @FILE`: options override the file."""
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    for command in (["start", "-f", str(file)], ["start", str(file)], ["doctor", str(file)], ["features", str(file)]):
        assert run([*command, "--concurrency", "none"]) == ExitCode.USAGE
        # The option is wrong, not the file.
        assert "the input is wrong: concurrency: " in capsys.readouterr().err


@pytest.mark.parametrize("kind", ALL.values(), ids=lambda kind: kind.name)
def test_a_schema_describes_each_field(kind: Registered, capsys: pytest.CaptureFixture[str]) -> None:
    """The schema of a kind has the fields that operators write, each with a text, and no others."""
    assert run(["schema", kind.name]) == ExitCode.OK
    schema = json.loads(capsys.readouterr().out)
    assert schema == plan_schema(kind)
    fields = {name: field for name, field in kind.input.model_fields.items() if INTERNAL not in field.metadata}
    assert set(schema["properties"]) == {"kind", "$schema", *fields}
    assert set(schema["required"]) == {"kind", *(name for name, field in fields.items() if field.is_required())}
    assert schema["additionalProperties"] is False
    nested = [definition for definition in schema["$defs"].values() if definition["type"] == "object"]
    described = [field for model in (schema, *nested) for field in model["properties"].values()]
    assert all(field.get("description") for field in described)
