"""`cdp label`, `cdp example` and `cdp compile`: from embeddings to labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdp.cli.app import ForceOption, OutOption, QuietOption, SeedOption, app, plain_errors
from cdp.cli.derived_options import Given, settings_from, with_settings
from cdp.consensus.settings import ConsensusSettings
from cdp.engine import Engine
from cdp.errors import InputError

if TYPE_CHECKING:
    from cdp.consensus.constraints import Constraints
    from cdp.labeling.judged import Labeling
    from cdp.labeling.workspace import Workspace
    from cdp.progress import Progress
    from cdp.types import KnnGraph, Views
    from cdp.types.run_record import Results


CorrectionsOption = Annotated[
    Path | None,
    typer.Option(
        help="A table of what is known of the images, which groups must keep; see docs/collections.md."
    ),
]


@dataclass(frozen=True)
class Inputs:
    """The files that `cdp label` reads."""

    unlabeled: Path
    labeled: Path | None
    validation: Path | None
    trained_mediator: Path | None
    knn: tuple[str, ...]
    base: str | None
    dim: int | None
    corrections: Path | None = None

    @property
    def paths(self) -> list[str | Path | None]:
        """All of them, those that are not given as None."""
        graphs = [entry.partition("=")[2] or entry for entry in self.knn]
        return [
            self.unlabeled,
            self.labeled,
            self.validation,
            self.trained_mediator,
            self.corrections,
            *graphs,
        ]


@app.command()
@with_settings(ConsensusSettings, Engine)
def label(
    unlabeled: Annotated[
        Path, typer.Argument(help="Views of the images to label: a folder, .npz, .parquet or .npy.")
    ],
    *,
    out: OutOption,
    labeled: Annotated[
        Path | None,
        typer.Option(help="Views of the labeled part, with identities; the mediator is trained on it."),
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(
            help="Views with identities to choose the bar on; unless given, labeled identities are held out."
        ),
    ] = None,
    trained_mediator: Annotated[
        Path | None, typer.Option(help="A mediator folder of an earlier call, instead of --labeled.")
    ] = None,
    knn: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FILE: use this k-NN file for a model of the unlabeled part; may be repeated."
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Keep graphs and mediators in this folder, and use them again where they fit."),
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="Name of the base model, for folders of .bin files.")
    ] = None,
    dim: Annotated[
        int | None, typer.Option(help="Dimensions, for .bin files without a list.", min=1, max=10**6)
    ] = None,
    corrections: CorrectionsOption = None,
    report: Annotated[
        bool, typer.Option("--report", help="Write report.html too, a page to look at.")
    ] = False,
    quote_formulas: Annotated[
        bool, typer.Option("--quote-formulas", help="Quote paths in labels.csv that a spreadsheet would run.")
    ] = False,
    seed: SeedOption = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
    given: Given,
) -> None:
    """Give every unlabeled image a pseudo-identity, or a reason why it has none.

    Settings that are not given come from --preset. Without --labeled nobody is known: then pairs are judged by their similarity,
    and the bar is chosen where the best F is to be expected.
    """
    with plain_errors():
        engine = settings_from(Engine, given)
        settings = settings_from(ConsensusSettings, given, ConsensusSettings.of)
        inputs = Inputs(
            unlabeled, labeled, validation, trained_mediator, tuple(knn or ()), base, dim, corrections
        )
        more: dict[str, Any] = {"report": report, "quote_formulas": quote_formulas, "seed": seed}
        label_files(inputs, out, settings, engine, cache=cache, force=force, quiet=quiet, **more)


def label_files(
    inputs: Inputs,
    out: Path,
    settings: ConsensusSettings,
    engine: Engine | None = None,
    *,
    cache: Path | None = None,
    report: bool = False,
    quote_formulas: bool = False,
    seed: int = 0,
    force: bool = False,
    quiet: bool = False,
) -> Results:
    """Read views, label them, write everything; the output folder appears only when everything is in it."""
    from cdp.cli.terminal import plain_warnings
    from cdp.files import writing_folder
    from cdp.labeling.figures import measure_labeling
    from cdp.labeling.output import write_labeling
    from cdp.labeling.pipeline import label as label_views
    from cdp.progress import progress_bars
    from cdp.store import hash_views

    check_teacher(inputs.labeled, inputs.trained_mediator, settings)
    # Opened first: that the output cannot be written must not be found out after an hour of work.
    given = [*inputs.paths, cache]
    with (
        writing_folder(out, force=force, kind="Labels", inputs=given) as folder,
        progress_bars(not quiet) as progress,
        plain_warnings(),
    ):
        unlabeled, labeled, validation = _read_parts(inputs)
        work = _open_workspace(engine or Engine(), cache, progress, out)
        labeling = label_views(
            unlabeled,
            settings,
            labeled=[] if labeled is None else [labeled],
            fitted=_fitted(inputs),
            validation=validation,
            graphs=_given_graphs(inputs.knn, unlabeled, settings.k),
            constraints=_constraints(inputs, unlabeled),
            seed=seed,
            workspace=work,
        )
        results = measure_labeling(labeling, unlabeled, seed=seed, scratch=work.scratch)
        made_from = {f"unlabeled/{name}": digest for name, digest in hash_views(unlabeled).items()}
        if labeled is not None:
            made_from |= {f"labeled/{name}": digest for name, digest in hash_views(labeled).items()}
        about = {"seed": seed, "unlabeled": str(inputs.unlabeled), "labeled": str(inputs.labeled or "")}
        more: dict[str, Any] = {"about": about, "made_from": made_from, "quote_formulas": quote_formulas}
        write_labeling(folder, labeling, results, paths=unlabeled.paths, **more)
        if report:
            _write_report(folder, labeling, results, labeled, unlabeled, progress)
    if not quiet:
        from cdp.cli.terminal import print_labeling

        print_labeling(labeling, results, out)
    return results


def _open_workspace(engine: Engine, cache: Path | None, progress: Progress, out: Path) -> Workspace:
    """Temporary files lie beside the output, on storage that all nodes of a cluster see."""
    from cdp.labeling.cache import Cache
    from cdp.labeling.workspace import Workspace
    from cdp.memory import return_freed_memory

    return_freed_memory()
    return Workspace(engine, Cache(cache), progress, folder=out.absolute().parent)


def check_teacher(labeled: Path | None, trained_mediator: Path | None, settings: ConsensusSettings) -> None:
    """Refuse to label where nothing says how pairs are judged, or two things do."""
    if labeled is not None and trained_mediator is not None:
        raise InputError(
            "--labeled and --trained-mediator are both given: the mediator is trained on one, or is there."
        )
    if labeled is None and trained_mediator is None and settings.mediator == "mlp":
        raise InputError(
            "Nothing to learn from: give --labeled VIEWS or --trained-mediator FOLDER, or leave --mediator and --preset out."
        )


def _read_parts(inputs: Inputs) -> tuple[Views, Views | None, Views | None]:
    from cdp.data.views import read_views
    from cdp.labeling.view_checks import check_same_models

    unlabeled, *others = [
        None if path is None else read_views(path, dim=inputs.dim, base=inputs.base)
        for path in (inputs.unlabeled, inputs.labeled, inputs.validation)
    ]
    assert unlabeled is not None
    for path, part in zip((inputs.labeled, inputs.validation), others, strict=True):
        if part is not None:
            check_same_models({path: part, inputs.unlabeled: unlabeled})
    return unlabeled, others[0], others[1]


def _fitted(inputs: Inputs) -> Any:
    if inputs.trained_mediator is None:
        return None
    from cdp.consensus.mediator import Mediator
    from cdp.labeling.fitting import Fitted

    return Fitted(Mediator.load(inputs.trained_mediator))


def _constraints(inputs: Inputs, unlabeled: Views) -> Constraints | None:
    if inputs.corrections is None:
        return None
    from cdp.collection.correction_tables import read_correction_table
    from cdp.collection.corrections import to_constraints

    known = read_correction_table(inputs.corrections, unlabeled.n_images, unlabeled.paths)
    return to_constraints(known, unlabeled.n_images)


def _given_graphs(entries: Sequence[str], views: Views, k: int) -> dict[str, KnnGraph] | None:
    """The graphs of `--knn NAME=FILE` entries, cut to k neighbors."""
    from cdp.data.knn_files import read_knn
    from cdp.types import KnnGraph

    graphs = {}
    models = dict(zip(views.names, views, strict=True))
    for entry in entries:
        name, separator, file = entry.partition("=")
        if not separator or name not in models:
            raise InputError(f"--knn {entry}: write NAME=FILE with a name from {', '.join(models)}.")
        graph = read_knn(file, models[name])
        if graph.k < k:
            raise InputError(f"{file} has {graph.k} neighbors per image, --k asks for {k}.")
        graphs[name] = KnnGraph(graph.neighbors[:, :k], graph.similarity[:, :k], f"file {file}")
    return graphs or None


def _write_report(
    folder: Path,
    labeling: Labeling,
    results: Results,
    labeled: Views | None,
    unlabeled: Views,
    progress: Progress,
) -> None:
    import numpy as np

    from cdp import __version__
    from cdp.consensus.settings import plain
    from cdp.types.run_record import PartRecord, RunRecord, StageRecord
    from cdp.web.report.artifacts import read_label_artifacts
    from cdp.web.report.write import write_page

    def count(views: Views) -> PartRecord:
        known = None if views.identities is None else len(np.unique(views.identities[views.identities >= 0]))
        return PartRecord(images=views.n_images, identities=known or None)

    progress("report", 0, 1)
    record = RunRecord(
        cdp=__version__,
        seconds=sum(labeling.seconds.values()),
        recipe={"consensus": plain(labeling.settings)},
        parts={"unlabeled": count(unlabeled)} | ({} if labeled is None else {"labeled": count(labeled)}),
        stages=[StageRecord(name=name, group=name, seconds=took) for name, took in labeling.seconds.items()],
        results=results,
        notes=list(labeling.notes),
    )
    write_page(record, read_label_artifacts(folder, unlabeled.identities), folder / "report.html")
    progress("report", 1, 1)


@app.command()
def example(
    out: OutOption = Path("example"),
    identities: Annotated[int, typer.Option(help="How many made-up people.", min=2, max=10**7)] = 1000,
    seed: SeedOption = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Label made-up embeddings four ways and compare, in under a minute, with no download."""
    with plain_errors():
        from cdp.cli.terminal import print_example
        from cdp.files import writing_folder
        from cdp.progress import progress_bars
        from cdp.store import fill, write_card
        from cdp_lab.demo import compare_ways
        from cdp_lab.synthetic import synthetic_views

        split = synthetic_views(identities, seed=seed)
        with writing_folder(out, force=force, kind="Example") as folder:
            (folder / "views").mkdir()
            for name, part in (("labeled", split.labeled), ("unlabeled", split.unlabeled)):
                fill(folder / "views" / name, part)
            with progress_bars(not quiet) as progress:
                rows = compare_ways(split, seed=seed, progress=progress)
            views = folder / "views"
            inputs = Inputs(views / "unlabeled", views / "labeled", None, None, (), None, None)
            label_files(inputs, folder / "labels", ConsensusSettings.of(), seed=seed, quiet=True)
            about = {"identities": identities, "seed": seed}
            write_card(folder, "Example", "Made-up embeddings, labeled four ways", about, {})
        if not quiet:
            print_example(split, rows, out)


@app.command("compile")
def compile_command(quiet: QuietOption = False) -> None:
    """Compile all loops of searches and labels now, in about half a minute, so that no later command waits for it."""
    with plain_errors():
        from cdp.progress import progress_bars
        from cdp_lab.compile_loops import compile_loops

        with progress_bars(not quiet) as progress:
            compile_loops(progress)
        if not quiet:
            print("All loops are compiled and kept on disk.")
