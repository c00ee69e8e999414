"""Output of commands as JSON and YAML."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.documents import read_document
from cli.options import Form, formatted

_TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["no", "on", "017", "0o17", "~", "1:30"])
_NAMES = st.from_regex(r"[a-z_]{3,12}", fullmatch=True).filter(lambda name: name not in {"yes", "off", "true", "null"})
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=10,
)


@given(values=st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=4))
def test_yaml_says_the_same_as_json(values: dict[str, Any]) -> None:
    """Readers of YAML 1.1 and 1.2 get the values that `-o json` prints."""
    printed = formatted(Form.YAML, values)
    assert json.loads(formatted(Form.JSON, values)) == values
    assert yaml.safe_load(printed) == values
    assert read_document(printed, "x").values == values


@pytest.mark.parametrize(("form", "lines"), [(Form.JSON, ['{"a":1}']), (Form.YAML, ["---", "a: 1"])])
def test_values_of_a_stream_are_apart(form: Form, lines: list[str]) -> None:
    """`--watch` prints one line of JSON, or one YAML document, for each change."""
    assert formatted(form, {"a": 1}, of_stream=True).splitlines() == lines
