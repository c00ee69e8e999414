"""Names that are longer than Temporal's limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from models.lifecycle.names import (
    MAX_ID_BYTES,
    MAX_KEYWORD_BYTES,
    MAX_SUMMARY_BYTES,
    bounded_id,
    file_name,
    keyword,
    summary_line,
)
from models.text import within_bytes
from models.topic_controller.input import ControllerInput, controller_id
from workflows.lifecycle.wave_children import child_id

WIDE = "\u4e00"


@pytest.mark.parametrize("letter", ["x", WIDE, "\N{GRINNING FACE}"])
@pytest.mark.parametrize(("shorten", "limit"), [(bounded_id, MAX_ID_BYTES), (keyword, MAX_KEYWORD_BYTES)])
def test_long_ids_stay_unique(shorten: object, limit: int, letter: str) -> None:
    """An id that fits stays as it is; longer ones are cut to whole characters, and differ if the whole ones do."""
    assert callable(shorten)
    fitting = letter * (limit // len(letter.encode()))
    assert shorten(fitting) == fitting
    first, second = (str(shorten(f"{fitting}{end}")) for end in ("long-a", "long-b"))
    assert first != second
    for shortened in (first, second):
        assert limit - 4 <= len(shortened.encode()) <= limit
        assert shortened.startswith(letter * (limit // len(letter.encode()) - 20))


@pytest.mark.parametrize("workflow_id", ["..", ".", "a/../b", f"scalable-topic/{WIDE * 300}", "x" * 900, "a\x00b"])
def test_folders_of_workflows(workflow_id: str, tmp_path: Path) -> None:
    """Each id has a folder below the given one, with room for the name of a folder that is not complete."""
    folder = tmp_path / file_name(workflow_id)
    (folder / "run").mkdir(parents=True)
    assert folder.resolve().parent == tmp_path.resolve()
    assert file_name("blue-green/a") == "blue-green%2Fa"
    assert file_name(f"{workflow_id}-a") != file_name(f"{workflow_id}-b")


def test_summaries() -> None:
    """A summary is one line that Temporal accepts."""
    assert summary_line("Split\nsegment 1") == "Split segment 1"
    line = summary_line(f"Create subscription {WIDE * 200}")
    assert line.endswith("…")
    assert MAX_SUMMARY_BYTES - 3 <= len(line.encode()) <= MAX_SUMMARY_BYTES
    assert within_bytes(WIDE, 3) == WIDE


def test_children_of_waves() -> None:
    """Ids of children count bytes: Temporal does."""
    assert child_id("parent", "item") == "parent/item"
    assert len(child_id("parent", WIDE * 800).encode()) <= MAX_ID_BYTES


def test_topics_of_controllers() -> None:
    """Ids of controllers have the whole name of the topic, so a name that does not fit is refused."""
    servers = {"metadata_url": "zk:zk:2181", "admin_urls": ["http://broker:8080"]}
    topic = "persistent://acme/shop/"
    longest = f"{topic}{'x' * (MAX_ID_BYTES - len(controller_id('prod', f'{topic}x')) + 1)}"
    fits = ControllerInput.model_validate({"cluster": "prod", "topic": longest, **servers})
    assert len(fits.workflow_id) == MAX_ID_BYTES
    with pytest.raises(ValidationError, match="at most 878 are allowed, as it is part of a workflow id"):
        ControllerInput.model_validate({"cluster": "prod", "topic": f"{longest}x", **servers})
