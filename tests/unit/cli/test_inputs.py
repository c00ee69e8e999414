"""Plans from the command line, and the `temporal` lines that are equivalent to commands."""

from __future__ import annotations

import json
import re
import shlex
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.inputs import Typed, parse_duration, read_input
from cli.operations import start_line, update_line
from models.bookie_cluster.input import BookieClusterInput
from models.field_texts import field_texts
from models.lifecycle.verbs import Verb, VerbRequest
from models.metadata_store.input import MetadataStoreInput, Mode
from models.scalable_topic.auto_scale import AutoScale
from models.scalable_topic.namespace_input import ScalableNamespaceInput
from models.topic_controller.input import ControllerInput
from process.exit_codes import CommandFailed, ExitCode
from worker.catalog import KINDS

SOURCE, TARGET = "zk:zk-1:2181,zk-2:2181/pulsar", "oxia://oxia:6648/default"
REQUIRED = {"cluster": "prod", "source": SOURCE, "target": TARGET}
NAMESPACE = {
    "cluster": "prod",
    "metadata_url": SOURCE,
    "admin_urls": ["http://broker:8080"],
    "topics": ["shop/live/*"],
}
KIND = KINDS["metadata-store"]


def test_options_win_over_input() -> None:
    """An option replaces the same field of the input, and leaves the others."""
    text = json.dumps({**REQUIRED, "concurrency": 4, "validation_window": "PT1H"})
    input = read_input(MetadataStoreInput, text, {"validation_window": "30m", "mode": "offline", "throttle": None})
    assert (input.validation_window, input.concurrency, input.mode) == (timedelta(minutes=30), 4, Mode.OFFLINE)


def test_lists_and_pairs() -> None:
    """An option takes several values, or names with values, between commas."""
    options = {"admin_urls": "http://a:8080,http://b:8080", "properties": "owner=sales,note=a=b", "segments": "3"}
    given = {"cluster": "prod", "metadata_url": SOURCE, "topic": "persistent://shop/live/orders"}
    input = read_input(ControllerInput, json.dumps(given), options)
    assert (input.admin_urls, input.segments) == (("http://a:8080", "http://b:8080"), 3)
    assert input.properties == {"owner": "sales", "note": "a=b"}


def test_input_from_a_file(tmp_path: Path) -> None:
    """`@FILE` reads the plan from a file."""
    (tmp_path / "plan.json").write_text(json.dumps(REQUIRED))
    assert read_input(MetadataStoreInput, f"@{tmp_path}/plan.json", {}).cluster == "prod"


@pytest.mark.parametrize(
    ("text", "options", "named"),
    [
        ('{"cluster": "prod"}', {}, "source: this field is needed; target: this field is needed"),
        (
            json.dumps({**REQUIRED, "validation_windw": "PT1H"}),
            {},
            "validation_windw: there is no such field. cure: correct this; needed are cluster, source",
        ),
        (json.dumps(REQUIRED), {"throttle": "fast"}, "throttle: "),
        (json.dumps(REQUIRED), {"throttle": "inf"}, "throttle: Input should be a finite number"),
        (json.dumps(REQUIRED), {"mode": "sideways"}, "mode: "),
        (json.dumps(REQUIRED), {"source": "http://zk"}, "source: "),
        (json.dumps(REQUIRED), {"target": SOURCE}, "the same tree"),
        (json.dumps(REQUIRED), {"validation_window": "a while"}, "invalid duration 'a while'"),
        (json.dumps(REQUIRED), {"validation_window": "90"}, "validation_window: '90' has no unit"),
        (json.dumps({**REQUIRED, "dry_run": "true"}), {}, "dry_run: 'true' is neither true nor false"),
        ("{", {}, "--input:1: it is neither YAML nor JSON: "),
        ("[1]", {}, "--input:1: it has no named values"),
        ('{"kind": "blue-green"}', {}, "kind: this plan is of the kind blue-green"),
        ("@/no/such/file", {}, "/no/such/file"),
    ],
)
def test_a_wrong_plan_names_the_field(text: str, options: dict[str, Typed], named: str) -> None:
    """A mistake in a plan is reported with the name of its field, as a usage error."""
    with pytest.raises(CommandFailed, match=re.escape(named)) as failure:
        read_input(MetadataStoreInput, text, options, kind=KIND.name)
    assert failure.value.code is ExitCode.USAGE
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("90s", 90),
        ("1.5m", 90),
        ("24h", 86400),
        ("2d", 172800),
        ("PT24H", 86400),
        ("00:01:30", 90),
        ("2 days", 172800),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """Durations are written short or as ISO 8601."""
    assert parse_duration(text).total_seconds() == seconds


def test_throttle_off_is_null() -> None:
    """`off` lifts a limit that the input sets."""
    input = read_input(MetadataStoreInput, json.dumps({**REQUIRED, "throttle": 5}), {"throttle": "off"})
    assert input.throttle is None


def test_options_are_explained_by_the_plan() -> None:
    """The help of `start` takes its sentences from the plan's docstring and its base's, whole."""
    texts = field_texts(MetadataStoreInput)
    assert set(REQUIRED) <= set(texts) <= set(MetadataStoreInput.model_fields)
    assert texts["full_verify"] == "compare both stores whole again while writes are blocked."


def test_nested_fields() -> None:
    """A field with fields of its own takes KEY=VALUE once for each; what follows the first `=` is the value."""
    typed = {"metadata_url": "zk:zk-1:2181", "routing": "restart", "cluster": "prod"}
    clusters = {
        "source": ["name=old", "metadataServiceUri=zk://zk-1:2181/ledgers"],
        "target": ["name=new", "metadataServiceUri=zk+null://zk-1:2181;zk-2:2181/a=b"],
    }
    input = read_input(BookieClusterInput, None, {**typed, **clusters})
    assert (input.source.name, input.source.metadataServiceUri) == ("old", "zk://zk-1:2181/ledgers")
    assert (input.target.name, input.target.root.root) == ("new", "/a=b")
    assert BookieClusterInput.model_validate(input.as_json()) == input


def test_nested_fields_over_input() -> None:
    """Keys replace those of the JSON input and leave the others, also below a key and in a field that may be null."""
    text = json.dumps({**NAMESPACE, "waves": {"canary": 3, "wave_size": 7}, "auto_scale": {"max_segments": 8}})
    waves = ["wave_size=50", "error_budget.share=0.1"]
    windows = ["open=0 22 * * MON-FRI", "duration=6h", "zone=Europe/Berlin"]
    input = read_input(
        ScalableNamespaceInput, text, {"waves": waves, "change_windows": windows, "auto_scale": ["enabled=false"]}
    )
    assert (input.waves.canary, input.waves.wave_size, input.waves.error_budget.share) == (3, 50, 0.1)
    assert (input.change_windows.open, input.change_windows.zone) == (("0 22 * * MON-FRI",), "Europe/Berlin")
    assert input.auto_scale == AutoScale(enabled=False, max_segments=8)
    assert read_input(ScalableNamespaceInput, text, {"auto_scale": ["off"]}).auto_scale is None


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("name=old", "target.metadataServiceUri: this field is needed"),
        ("metadataServiceUri=/ledgers", "target.metadataServiceUri: unsupported metadataServiceUri '/ledgers'"),
        ("name=", "target.name: "),
        ("uri=zk://zk-1:2181/ledgers", "target.uri: there is no such field"),
        ("new", "--target: 'new' is not KEY=VALUE. cure: write KEY=VALUE"),
        ("name.first=new", "--target: 'first=new' is not target=VALUE"),
    ],
)
def test_wrong_nested_field_is_named(typed: str, named: str) -> None:
    """A message about a nested field names it with its path."""
    source = {"name": "a", "metadataServiceUri": "zk://zk-1:2181/a"}
    text = json.dumps({"metadata_url": "zk:zk-1:2181", "routing": "restart", "cluster": "prod", "source": source})
    with pytest.raises(CommandFailed, match=re.escape(named)):
        read_input(BookieClusterInput, text, {"target": [typed]})


_NAMES = st.from_regex(r"[A-Za-z0-9_.-]+", fullmatch=True)


@given(
    input=st.builds(
        MetadataStoreInput,
        cluster=_NAMES,
        dry_run=st.booleans(),
        source=st.just(SOURCE),
        target=_NAMES.filter(lambda name: name[0].isalnum()).map(lambda name: f"oxia://host:6648/{name}"),
        validation_window=st.timedeltas(timedelta(0), timedelta(days=90)),
        throttle=st.none() | st.floats(0.1, 1000),
    )
)
def test_the_start_line_contains_the_plan(input: MetadataStoreInput) -> None:
    """A shell reads the printed line back into the same plan, id, type and search attributes."""
    words = shlex.split(start_line(KIND, input, "the queue"))
    assert words[:3] == ["temporal", "workflow", "start"]
    options = dict(zip(words[3::2], words[4::2], strict=False))
    assert MetadataStoreInput.model_validate_json(words[words.index("--input") + 1]) == input
    assert options["--workflow-id"] == input.workflow_id
    assert (options["--type"], options["--task-queue"]) == ("MetadataStoreMigration", "the queue")
    assert f'--search-attribute=MigrationTarget="{input.target}"' in words


def test_the_update_line_contains_the_verb() -> None:
    """Quotes and spaces in a reason survive a shell."""
    steering = VerbRequest(verb=Verb.ROLLBACK, reason='ana\'s "change" $HOME')
    words = shlex.split(update_line("metadata-store/prod", "steer", steering.model_dump(mode="json")))
    assert VerbRequest.model_validate_json(words[-1]) == steering


def test_defaults_are_left_to_the_worker() -> None:
    """A value that equals its default is not sent."""
    assert MetadataStoreInput.model_validate(REQUIRED).as_json() == REQUIRED
