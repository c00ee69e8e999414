"""`pulsar-migrate` and `python -m pulsar_migrate`: the command line, on a path where our packages come first."""

from __future__ import annotations

from pulsar_migrate import use_own_packages


def main() -> None:
    """Run the command of this process, and leave with its exit code."""
    use_own_packages()
    # Only now: these names may belong to others on the path as it was.
    from cli.app import main as run

    run()


if __name__ == "__main__":
    main()
