"""Jobs of `make test`: their order, and how the run ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pulsar_devstack.servers.server_releases import RELEASES
from tests import tiers
from tests.releases import SELECTIONS, Selection
from tests.tiers import APART, Job, Jobs, Machine, execute, stages


def job(name: str, *scripts: str) -> Job:
    """Return a job of Python programs."""
    return Job(name, [[sys.executable, "-c", script] for script in scripts])


def test_every_test_belongs_to_a_job() -> None:
    """The jobs of the default release take the tests of each tier and area once, also when areas are added."""
    jobs = [job for stage in stages() for job in stage if job.tier != "releases"]
    paths = [Path(argument) for job in jobs for command in job.commands for argument in command]
    chosen = [path for path in paths if path.parts and path.parts[0] in {"tests", "scalable_client"}]
    root = Path(__file__).parents[3]
    files = [file for folder in ("tests", "scalable_client") for file in (root / folder).rglob("test_*.py")]
    for test in [file for file in files if not any(file.is_relative_to(root / folder) for folder in APART)]:
        assert len([path for path in chosen if test.is_relative_to(root / path)]) == 1, test


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda selection: selection.job)
def test_selections_of_releases_name_tests(selection: Selection) -> None:
    """Each selection is on a line that the dev stack has, and names files that exist."""
    assert selection.line in RELEASES
    root = Path(__file__).parents[3]
    for argument in (*selection.tests, *selection.sample):
        if argument.startswith(("tests/", "scalable_client/")):
            assert (root / argument.partition("::")[0]).exists(), argument


def test_the_first_failure_counts(capfd: pytest.CaptureFixture[str]) -> None:
    """The exit code is that of the command that failed first, and no command starts after it."""
    first = [job("good", "print('one')"), job("bad/area", "import sys; sys.exit(3)", "print('never')")]

    code = execute([first, [job("later", "print('never')")]], 1)

    shown = capfd.readouterr().out
    assert code == 3
    assert "one" in shown
    assert "never" not in shown
    assert "bad/area" in shown
    assert shown.rstrip().endswith("FAILED")


def test_others_begin_after_a_failure_where_that_is_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    """With `keep_going` all jobs run, and the exit code is still that of the failure."""
    code = execute([[job("bad", "import sys; sys.exit(3)"), job("good", "print('one')")]], 1, keep_going=True)
    assert code == 3
    assert "one" in capfd.readouterr().out


def test_a_job_that_is_killed_has_failed() -> None:
    """A job that a signal ends counts as a shell counts it."""
    assert execute([[job("killed", "import os; os.kill(os.getpid(), 15)")]], 2) == 128 + 15


def test_all_pass(capfd: pytest.CaptureFixture[str]) -> None:
    """Each job is listed with its time, and the last line says that all passed."""
    assert execute([[job("one", ""), job("two", "")], [job("three", "")]], 2) == 0
    lines = capfd.readouterr().out.rstrip().splitlines()
    assert [line.split()[0] for line in lines[-4:-1]] in (["one", "two", "three"], ["two", "one", "three"])
    assert lines[-1].endswith("passed")


def test_a_job_without_servers_runs_next_to_others(tmp_path: Path) -> None:
    """A job without servers starts although the maximum of jobs with servers runs."""
    done = tmp_path / "done"
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(done)!r}).exists(): time.sleep(0.01)"
    first = [job("faults/a", waits), job("faults/b", waits), job("unit", f"open({str(done)!r}, 'w')")]
    assert execute([first], 2) == 0


def test_jobs_with_servers_take_the_place_of_the_others(tmp_path: Path) -> None:
    """When no job without servers is left, one more with servers runs; before, only as many as wanted."""
    three = [job(f"faults/{name}", _waits_for_all(tmp_path, "abc", name)) for name in "abc"]
    begun = f"len([*pathlib.Path({str(tmp_path)!r}).iterdir()])"
    unit = f"import pathlib, sys, time\nwhile {begun} < 2: time.sleep(0.01)\ntime.sleep(0.3); sys.exit({begun} > 2)"
    assert execute([[job("unit", unit), *three]], 2) == 0
    assert {file.name for file in tmp_path.iterdir()} == {*"abc"}


@pytest.mark.parametrize("tier", ["faults", "workflows"], ids=["with servers", "without servers"])
def test_a_job_more_runs_while_the_machine_has_time(tmp_path: Path, tier: str) -> None:
    """Four jobs with servers run at once instead of three, or four without servers instead of one, if it idles."""
    with Jobs(2, is_idle=lambda: True) as jobs:
        waiting = [job(f"{tier}/{name}", _waits_for_all(tmp_path, "abcd", name)) for name in "abcd"]
        assert [result.code for result in jobs.run(waiting)] == [0] * 4


@pytest.mark.parametrize(
    ("idle", "memory", "every", "expected"),
    [(20, 8 << 20, 0.0, True), (5, 8 << 20, 0.0, False), (20, 1 << 20, 0.0, False), (20, 8 << 20, 60.0, False)],
    ids=["idle", "busy", "little memory", "too early"],
)
def test_idle_processors_are_seen(
    monkeypatch: pytest.MonkeyPatch, idle: int, memory: int, every: float, expected: bool
) -> None:
    """A tenth of the processors' time and some memory must be free; a look that comes too early finds nothing."""
    times = iter(([100, 0, 100, 900, 0], [200 - idle, 0, 100, 900 + idle, 0]))
    monkeypatch.setattr(tiers, "_processor_times", lambda: next(times))
    monkeypatch.setattr(tiers, "_available_memory", lambda: memory)
    monkeypatch.setattr(tiers, "_LOOK_EVERY", every)
    assert Machine().is_idle() is expected


def test_jobs_without_servers_come_one_after_the_other(tmp_path: Path) -> None:
    """A second job without servers waits for the first one, also if no other job is left."""
    folder = str(tmp_path / "runs")
    alone = f"import os, time\nos.mkdir({folder!r}); time.sleep(0.3); os.rmdir({folder!r})"
    assert execute([[job("unit", alone), job("workflows/a", alone), job("workflows/b", alone)]], 2) == 0


def _waits_for_all(folder: Path, names: str, name: str) -> str:
    """Return a program that runs until all of several do."""
    return (
        f"import pathlib, time\nfolder = pathlib.Path({str(folder)!r})\n(folder / {name!r}).touch()\n"
        f"while len([*folder.iterdir()]) < {len(names)}: time.sleep(0.01)"
    )


def test_each_job_has_its_own_folders(capfd: pytest.CaptureFixture[str]) -> None:
    """The tests of a job have a root for their folders that no other job's tests clean up."""
    shows = "import os; print(os.environ['PYTEST_DEBUG_TEMPROOT'])"
    assert execute([[job("faults/a", shows), job("faults/b", shows)]], 1) == 0
    roots = [line for line in capfd.readouterr().out.splitlines() if "pulsar-migrate-tests" in line]
    assert [Path(root).name for root in sorted(roots)] == ["faults-a", "faults-b"]
    assert all(Path(root).is_dir() for root in roots)
