"""The pool: what one run made, another links; the same key is the same contents, and nothing half-made is seen."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refuses

from cdp.config.sections import EngineSection
from cdp.run.pool import Pool
from cdp.run.runner import Listener, Ran, run_stages
from cdp.run.stages import Context, Ledger, Stage, only, signatures
from cdp.storage.files import partial_beside


@dataclass(frozen=True)
class Flour:
    value: str = ""


class Bakery:
    """Runs of three stages that write text: dough (a folder) -> bread, and a bill that stays in its own run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = Pool(folder / "pool")
        self.pool.folder.mkdir()
        self.baked: list[str] = []

    def stages(self, flour: str = "rye") -> list[Stage]:
        def dough(settings: Flour, context: Context) -> None:
            self.baked.append("dough")
            (context.folder / "dough" / "deep").mkdir(parents=True)
            (context.folder / "dough" / "deep" / "flour.txt").write_text(settings.value)

        def bread(settings: Flour, context: Context) -> None:
            self.baked.append("bread")
            flour = (context.folder / "dough" / "deep" / "flour.txt").read_text()
            (context.folder / "bread.txt").write_text(f"{flour} bread")

        def bill(settings: Flour, context: Context) -> None:
            self.baked.append("bill")
            (context.folder / "bill.txt").write_text(str(context.folder))

        return [
            Stage("dough", "bakery", dough, Flour(flour), (), {"dough": "dough"}),
            Stage("bread", "bakery", bread, Flour(), ("dough",), {"bread": "bread.txt"}),
            Stage("bill", "bakery", bill, Flour(), (), {"bill": "bill.txt"}, is_shared=False),
        ]

    def run(self, name: str, flour: str = "rye", pooled: bool = True) -> list[Ran]:
        self.baked.clear()
        ledger = Ledger(self.folder / name)
        ledger.open()
        pool = self.pool if pooled else None
        return run_stages(self.stages(flour), ledger, Listener(), {}, EngineSection(), pool)


@pytest.fixture
def bakery(tmp_path: Path) -> Bakery:
    return Bakery(tmp_path)


def test_what_one_run_made_another_links(bakery: Bakery) -> None:
    first = bakery.run("one")
    assert bakery.baked == ["dough", "bread", "bill"]
    second = bakery.run("two")
    assert bakery.baked == ["bill"]
    assert [one.fresh for one in second] == [True, True, False]
    assert [one.record for one in second[:2]] == [one.record for one in first[:2]]
    files = [bakery.folder / name / "dough" / "deep" / "flour.txt" for name in ("one", "two")]
    assert len({file.stat().st_ino for file in files}) == 1
    assert (bakery.folder / "two" / "bread.txt").read_text() == "rye bread"
    assert (bakery.folder / "two" / "bill.txt").read_text() == str(bakery.folder / "two")
    # The second run is as fresh without the pool as the first.
    bakery.run("two", pooled=False)
    assert bakery.baked == []


def test_other_settings_are_another_entry_and_leave_the_first_alone(bakery: Bakery) -> None:
    bakery.run("one")
    bakery.run("two")
    bakery.run("two", flour="wheat")
    assert bakery.baked == ["dough", "bread"]
    assert (bakery.folder / "one" / "bread.txt").read_text() == "rye bread"
    assert (bakery.folder / "two" / "bread.txt").read_text() == "wheat bread"
    bakery.run("two")
    assert bakery.baked == []
    assert (bakery.folder / "two" / "bread.txt").read_text() == "rye bread"


def test_without_links_files_are_copied(bakery: Bakery, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: str, target: str) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    bakery.run("one")
    bakery.run("two")
    assert bakery.baked == ["bill"]
    assert (bakery.folder / "two" / "bread.txt").read_text() == "rye bread"


def test_damage_is_found_and_made_again(bakery: Bakery) -> None:
    ran = bakery.run("one")
    # Written through the link: the run's copy and the pool's are one file.
    (bakery.folder / "one" / "bread.txt").write_text("mold")
    bakery.run("two")
    assert bakery.baked == ["bread", "bill"]
    assert (bakery.folder / "two" / "bread.txt").read_text() == "rye bread"
    bakery.run("one")
    assert bakery.baked == []
    assert (bakery.folder / "one" / "bread.txt").read_text() == "rye bread"
    (bakery.pool.folder / ran[0].record.key / "record.json").write_text("{")
    shutil.rmtree(bakery.folder / "two")
    bakery.run("two")
    assert bakery.baked == ["dough", "bill"]


def test_half_an_entry_is_not_seen_and_swept_when_its_maker_is_dead(bakery: Bakery) -> None:
    ran = bakery.run("one")
    key = ran[0].record.key
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    alive = partial_beside(bakery.pool.folder / key)
    left = [
        alive,
        alive.with_name(alive.name.replace(f"-{os.getpid()}-", f"-{dead.pid}-")),
        alive.with_name(re.sub(r"partial-[^-]+-\d+-", f"partial-elsewhere-{dead.pid}-", alive.name)),
    ]
    for folder in left:
        folder.mkdir()
    shutil.rmtree(bakery.pool.folder / key)
    bakery.run("two")
    assert bakery.baked == ["dough", "bill"]
    bakery.pool.sweep()
    assert [folder.exists() for folder in left] == [True, False, True]


def test_a_fresh_stage_that_was_not_published_is_published_later(bakery: Bakery) -> None:
    bakery.run("one", pooled=False)
    assert list(bakery.pool.folder.iterdir()) == []
    bakery.run("one")
    assert bakery.baked == []
    bakery.run("two")
    assert bakery.baked == ["bill"]


def test_a_run_killed_while_it_fetched_fetches_again(bakery: Bakery) -> None:
    bakery.run("one")
    folder = bakery.folder / "two"
    ledger = Ledger(folder)
    ledger.open()
    ledger.begin(bakery.stages()[0], {})
    (folder / "dough" / "deep").mkdir(parents=True)
    (folder / "dough" / "deep" / "flour.txt").write_text("half")
    bakery.run("two")
    assert bakery.baked == ["bill"]
    assert (folder / "dough" / "deep" / "flour.txt").read_text() == "rye"
    assert (bakery.folder / "one" / "dough" / "deep" / "flour.txt").read_text() == "rye"


def test_only_what_is_needed(bakery: Bakery) -> None:
    stages = bakery.stages()
    assert [stage.name for stage in only(stages, ["bread"])] == ["dough", "bread"]
    assert [stage.name for stage in only(stages, ["bill"])] == ["bill"]
    assert [stage.name for stage in only(stages, [])] == []
    with refuses("stage-artifacts-unknown", artifacts=("beer", "cake")):
        only(stages, ["cake", "bread", "beer"])


chains = st.lists(
    st.tuples(st.integers(0, 2), st.sets(st.integers(0, 5), max_size=3)), min_size=1, max_size=6
)


@given(chains, chains)
@settings(max_examples=150, deadline=None)
def test_equal_signatures_are_equal_keys(
    one: list[tuple[int, set[int]]], other: list[tuple[int, set[int]]]
) -> None:
    """Before anything has run, signatures tell which stages two runs will share."""

    def signed(chain: list[tuple[int, set[int]]]) -> list[tuple[str, str]]:
        """Signature and key of every stage; what a stage makes is a function of its key."""
        stages = [
            Stage(
                f"stage{at}",
                "",
                lambda settings, context: None,
                Flour(str(value)),
                (*(f"made{need}" for need in sorted(needs) if need < at), "source"),
                {f"made{at}": f"{at}"},
            )
            for at, (value, needs) in enumerate(chain)
        ]
        digests = {"source": "s"}
        keys = []
        for stage in stages:
            keys.append(stage.key(digests))
            digests |= dict.fromkeys(stage.makes, f"hash of {keys[-1]}")
        return list(zip(signatures(stages, "s"), keys, strict=True))

    everything = signed(one) + signed(other)
    assert (
        len({pair[0] for pair in everything}) == len({pair[1] for pair in everything}) == len(set(everything))
    )


def test_records_in_the_pool_are_those_of_the_run(bakery: Bakery) -> None:
    ran = bakery.run("one")
    for one in ran[:2]:
        held = json.loads((bakery.pool.folder / one.record.key / "record.json").read_text())
        assert held["seconds"] == one.record.seconds
        assert held["makes"] == one.record.makes
