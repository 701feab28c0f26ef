"""What judged the pairs of a collection, on disk: graphs, candidate pairs, answers, trees or mediator."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from cdp.consensus.boosted_trees import BoostedTrees
from cdp.consensus.grouping import at_bar
from cdp.consensus.mediator import Mediator
from cdp.consensus.settings import ConsensusSettings
from cdp.consensus.trees import FOLDS, TreeAnswers
from cdp.files import writing_folder
from cdp.labeling.judged import Judged
from cdp.store import fill, load, read_array, read_card, read_settings, write_card
from cdp.types import ConsensusGraph, KnnGraph, Pairs
from cdp.types.arrays import AnyArray, LongArray

KIND = "CollectionJudged"


class JudgedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the card says.

    Images (known ones among them), names of models, passes of trees (0 = none), mediator or not, share of the known images that are used.
    """

    n_nodes: int
    k: int
    models: tuple[str, ...]
    passes: int
    has_mediator: bool
    share: float = 1.0


def write_judged(place: Path, judged: Judged, mediator: Mediator | None) -> None:
    """Write all that judging more pairs will need."""
    arrays: dict[str, AnyArray] = {"known": judged.known}
    answers = judged.answers
    if answers is not None:
        assert judged.pairs is not None
        arrays["ids"] = judged.pairs.ids
        arrays |= {f"pass{number}": one for number, one in enumerate(answers.passes, 1)}
    else:
        arrays |= {"ids": judged.scored.ids, "doubt": judged.scored.doubt}
    with writing_folder(place, force=True) as folder:
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        for number, graph in enumerate(judged.graphs.values()):
            _fill_inner(folder / "graphs" / str(number), graph)
        _fill_inner(folder / "graphs" / "together", judged.together)
        if mediator is not None:
            fill(folder / "mediator", mediator)
        for number, judges in enumerate(answers.judges if answers is not None else (), 1):
            for fold, trees in enumerate(judges):
                _fill_inner(folder / "trees" / f"pass{number}-fold{fold}", trees)
        facts = JudgedFacts(
            n_nodes=judged.together.n_images,
            k=judged.k,
            models=tuple(judged.graphs),
            passes=0 if answers is None else len(answers.passes),
            has_mediator=mediator is not None,
            share=judged.share,
        )
        summary = f"{len(arrays['ids']):,} pairs of {facts.n_nodes:,} images"
        write_card(folder, KIND, summary, msgspec.to_builtins(facts), {}, arrays)


def _fill_inner(folder: Path, noun: KnnGraph | BoostedTrees) -> None:
    folder.parent.mkdir(exist_ok=True)
    fill(folder, noun)


def read_judged(place: Path, settings: ConsensusSettings) -> tuple[Judged, Mediator | None]:
    """All that judging more pairs needs; every array is compared with its hash."""
    card = read_card(place, KIND)
    facts = read_settings(place, card, JudgedFacts)
    graphs = {
        name: load(place / "graphs" / str(number), KnnGraph) for number, name in enumerate(facts.models)
    }
    pairs, answers = None, None
    if facts.passes:
        passes = range(1, facts.passes + 1)
        pairs = Pairs(read_array(place, "ids", card), facts.n_nodes)
        answers = TreeAnswers(
            tuple(read_array(place, f"pass{number}", card) for number in passes),
            tuple(
                tuple(
                    load(place / "trees" / f"pass{number}-fold{fold}", BoostedTrees)
                    for fold in range(FOLDS + 1)
                )
                for number in passes
            ),
        )
    judged = Judged(
        scored=read_scored(place, settings),
        graphs=graphs,
        together=load(place / "graphs" / "together", KnnGraph),
        k=facts.k,
        known=read_known(place),
        pairs=pairs,
        answers=answers,
        share=facts.share,
    )
    return judged, load(place / "mediator", Mediator) if facts.has_mediator else None


def read_scored(place: Path, settings: ConsensusSettings) -> ConsensusGraph:
    """The pairs that count when groups are made at the settings' bar, known images among them."""
    card = read_card(place, KIND)
    facts = read_settings(place, card, JudgedFacts)
    ids = read_array(place, "ids", card, check=False)
    if facts.passes:
        doubt = 1 - read_array(place, f"pass{facts.passes}", card, check=False)
    else:
        doubt = read_array(place, "doubt", card, check=False)
    return at_bar(ConsensusGraph(ids, doubt, facts.n_nodes), settings)


def read_known(place: Path) -> LongArray:
    """Known identities of all images, -1 where unknown."""
    return read_array(place, "known", read_card(place, KIND), check=False)
