"""Mutants of what the blue-green migration refuses before anything moves."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STORES = "tests/unit/blue_green/test_stores.py"
_CLIENTS = "tests/unit/blue_green/test_client_versions.py"

MUTANTS = (
    Mutant(
        "blue-green/configuration-store-of-both",
        "activities/blue_green/precheck_stores.py",
        "    if shared:\n",
        "    if not shared:\n",
        (_STORES,),
    ),
    Mutant(
        "blue-green/configuration-store-apart",
        "activities/blue_green/precheck_stores.py",
        "    return None if same else used\n",
        "    return None\n",
        (_STORES,),
    ),
    Mutant(
        "blue-green/java-clients-without-a-lookup",
        "activities/blue_green/client_versions.py",
        '    "Java": (3, 2, 0),\n',
        '    "Java": (3, 0, 0),\n',
        (_CLIENTS,),
    ),
)
