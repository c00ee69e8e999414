"""Mutants of the migration flag and the claim beside it."""

from __future__ import annotations

from tests.mutants.quoted import Quoted

_RACES = ("tests/unit/metadata_store/test_flag.py",)
_FLAGS = ("tests/integration/metadata_store/test_flag.py",)
_FLAG = "activities/metadata_store/flag.py"

MUTANTS = (
    Quoted(
        "metadata-store/flag-of-any-version",
        _FLAG,
        "else Set(FLAG, value, state.version)\n",
        "else Set(FLAG, value, -1)\n",
        _RACES,
    ),
    Quoted(
        "metadata-store/flag-with-a-claim-of-any-version",
        _FLAG,
        "self._store.transaction([part, Set(CLAIM, claim.encode(), state.claim_version)])",
        "self._store.transaction([part, Set(CLAIM, claim.encode(), -1)])",
        _RACES,
    ),
    Quoted(
        "metadata-store/flag-without-the-claim",
        _FLAG,
        "self._store.transaction([part, Set(CLAIM, claim.encode(), state.claim_version)])",
        "self._store.transaction([part])",
        _RACES,
    ),
    Quoted(
        "metadata-store/flag-over-a-later-run",
        _FLAG,
        "            self._store.set(FLAG, state.flag.encode(), state.version)\n",
        "            self._store.set(FLAG, state.flag.encode(), -1)\n",
        _RACES,
    ),
    Quoted(
        "metadata-store/fence-without-claim",
        _FLAG,
        "        require_newest(state.claim, self._me, str(self._store.url))\n        if state.flag",
        "        if state.flag",
        _RACES,
    ),
    Quoted(
        "metadata-store/fence-without-phase",
        _FLAG,
        "        if state.flag.phase not in phases:",
        "        if not phases:",
        _RACES,
    ),
    Quoted(
        "metadata-store/mark-of-any-version",
        _FLAG,
        "self._claim.successor(state.claim).encode(), state.claim_version)\n        # A set does not tell",
        "self._claim.successor(state.claim).encode(), -1)\n        # A set does not tell",
        _RACES,
    ),
    Quoted(
        "metadata-store/mark-of-another-attempt",
        _FLAG,
        "if node is None or node.version != state.claim_version + 1:",
        "if node is None:",
        _RACES,
    ),
    Quoted(
        "metadata-store/release-of-any-version",
        _FLAG,
        "self._store.transaction([Delete(CLAIM, state.claim_version)])",
        "self._store.transaction([Delete(CLAIM, -1)])",
        _RACES,
    ),
    Quoted(
        "metadata-store/release-leaves-writes-blocked",
        _FLAG,
        "        if state.blocked_by(self._me.workflow_id):\n            state = self._move",
        "        if False:\n            state = self._move",
        _FLAGS,
    ),
    Quoted(
        "metadata-store/a-new-run-knows-the-old-commit",
        _FLAG,
        "failed, self._claim.successor(state.claim, **_NEW_RUN))",
        "failed, self._claim.successor(state.claim))",
        _RACES,
    ),
    Quoted(
        "metadata-store/a-late-step-advances",
        _FLAG,
        "        require_newest(state.claim, self._me, str(self._store.url))\n        assert state.claim is not None\n",
        "        assert state.claim is not None\n",
        _FLAGS,
    ),
    Quoted(
        "metadata-store/a-run-blocks-twice",
        _FLAG,
        "        if to is FlagPhase.PREPARATION and claim.flag_version >= 0:",
        "        if to is FlagPhase.PREPARATION and claim.flag_version >= 1_000:",
        _FLAGS,
    ),
    Quoted(
        "metadata-store/a-foreign-flag-is-moved",
        _FLAG,
        "or (not mine and state.flag.phase not in OPEN_PHASES):",
        "or False:",
        _FLAGS,
    ),
    Quoted(
        "metadata-store/phases-in-any-order",
        _FLAG,
        "        if state.flag.phase not in _FROM[to] or (",
        "        if (",
        _FLAGS,
    ),
    Quoted(
        "metadata-store/a-repeated-move-moves-again",
        _FLAG,
        "        if mine and state.flag.phase is to:",
        "        if False:",
        _FLAGS,
    ),
    Quoted(
        "metadata-store/unblock-leaves-the-claim",
        _FLAG,
        "        self._store.set(CLAIM, self._claim.successor(claim).encode(), state.claim_version)\n",
        "",
        _FLAGS,
    ),
    Quoted(
        "metadata-store/unblock-takes-from-a-later-run",
        _FLAG,
        "        return not claim.is_of(self._me) and claim.is_newer_than(self._me)",
        "        return False",
        _FLAGS,
    ),
    Quoted(
        "metadata-store/expire-of-a-later-run",
        _FLAG,
        "if claim is None or not claim.is_of(self._me) or not state.blocked_by(self._me.workflow_id):",
        "if claim is None or not state.blocked_by(self._me.workflow_id):",
        _FLAGS,
    ),
    Quoted(
        "metadata-store/expire-leaves-the-attempt",
        _FLAG,
        '"attempt": claim.attempt + 1, "flag_version"',
        '"flag_version"',
        _FLAGS,
    ),
    Quoted(
        "metadata-store/ownership-by-phase",
        _FLAG,
        "            and self.claim.flag_version == self.version\n",
        "",
        _FLAGS,
    ),
)
