"""The doubles that the other tests of this tier rest on."""

from __future__ import annotations

import inspect
from typing import Any

from activities.hooks.activities import HookActivities
from tests.workflows.lifecycle.doubles import Doubles, real_steps


def test_there_is_a_double_for_each_step() -> None:
    """The doubles have the names and the signatures of all real steps; those of hooks run as they are."""
    hooks = [_definition(activity).name for activity in HookActivities({}).all]
    real, doubled = real_steps(), [step for step in Doubles().activities() if _definition(step).name not in hooks]
    assert [_definition(step).name for step in doubled] == [_definition(step).name for step in real]
    assert [inspect.signature(step) for step in doubled] == [inspect.signature(step) for step in real]


def _definition(step: Any) -> Any:
    return step.__temporal_activity_definition
