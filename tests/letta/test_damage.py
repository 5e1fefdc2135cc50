"""The kinds of damage, and what the lexicon says of them."""

from lettaspace.atproto.lexicon import shipped
from lettaspace.letta import damage


def test_the_lexicon_knows_every_kind_that_a_record_may_hold() -> None:
    kinds = {value for name, value in vars(damage).items() if name.isupper()}
    in_reports_only = {"badAgent", "badName", "busy", "olderCopy"}
    definition = shipped().definition("xyz.quasigod.lab.letta.defs#damage")
    assert definition is not None
    known = definition["properties"]["kind"]["knownValues"]
    assert set(known) == {kind for kind in kinds if isinstance(kind, str)} - in_reports_only
