"""How brokers read names of topics."""

from __future__ import annotations

_SEPARATOR = "-partition-"
# Brokers read the number with `Integer.parseInt`, and take a name for that of a partition only where it is written as
# they write it: without zeros in front.
_MOST = 2**31 - 1


def partition_number(name: str) -> int | None:
    """Return the number of the partition that a topic is named as; None for the name of a whole topic.

    Args:
        name: of a topic, with or without its namespace.
    """
    _, separator, digits = name.rpartition(_SEPARATOR)
    if not separator or not digits.isdecimal():
        return None
    number = int(digits[: len(str(_MOST)) + 1])
    return number if number <= _MOST and len(str(number)) == len(digits) else None


def whole_name(name: str) -> str:
    """Return the name of the partitioned topic of a partition; the same name for a whole topic.

    `-partition-1` is for brokers a partition of a topic without a name, which they refuse: it stays as it is.
    """
    return name if partition_number(name) is None else name.rpartition(_SEPARATOR)[0] or name
