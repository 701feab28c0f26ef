"""`cdp label`: photos, face crops or embeddings into identities."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdp.cli.app import ForceOption, OutOption, QuietOption, SeedOption, app, plain_errors
from cdp.cli.derived_options import Given, settings_from, with_settings
from cdp.cli.help_pages import Command, help_page
from cdp.cli.image_options import PhotoOptions
from cdp.cli.input_kinds import InputKindOption, find_kind
from cdp.errors import InputError, OutputExistsError
from cdp.faces.align_settings import AlignSettings
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import ConsensusSettings

if TYPE_CHECKING:
    from cdp.collection.corrections import Correction
    from cdp.faces.photo_scan import PhotoScan
    from cdp.labeling.fitting import Fitted
    from cdp.runtime.progress import Progress
    from cdp.runtime.runtime import Runtime
    from cdp.types import KnnGraph, Views

ModelsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Photos: folder of .onnx models, a detector and embedders; downloaded once if not given.",
        rich_help_panel="Input",
    ),
]
DetectorOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Photos: the face detector, if not in --models.", rich_help_panel="Faces"
    ),
]
BaseOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name of the base model; default: the first.", rich_help_panel="Input"),
]
CorrectionsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="TABLE",
        help="Facts about images that groups must respect: same, different, name, reject.",
        rich_help_panel="Input",
    ),
]


LabeledOption = Annotated[
    Path | None,
    typer.Option(
        metavar="VIEWS", help="Embeddings of labeled images, to learn from.", rich_help_panel="Input"
    ),
]
NamesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="TABLE",
        help="Names of people: columns name, and identity (in --labeled), path or row.",
        rich_help_panel="Input",
    ),
]
ValidationOption = Annotated[
    Path | None,
    typer.Option(
        metavar="VIEWS",
        help="Labeled images to choose the threshold on; some of --labeled by default.",
        rich_help_panel="Input",
    ),
]
MediatorOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="A trained mediator, instead of --labeled.", rich_help_panel="Input"),
]
KnnOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=FILE", help="Use this k-NN file for a model.", rich_help_panel="Neighbor search"
    ),
]
CacheOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Keep graphs and mediators here, and reuse them.", rich_help_panel="Machine"
    ),
]
DimOption = Annotated[
    int | None,
    typer.Option(help="Dimensions of .bin files without a list.", min=1, max=10**6, rich_help_panel="Input"),
]
QuoteOption = Annotated[
    bool,
    typer.Option(
        "--quote-formulas",
        help="Quote texts in labels.csv that a spreadsheet would run.",
        rich_help_panel="Result",
    ),
]
SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="INPUT", help="Photos, aligned face crops, or embeddings (folder, .npz, .parquet, .npy)."
    ),
]


@app.command(cls=Command)
@with_settings(ConsensusSettings, RuntimeSettings, AlignSettings, PhotoOptions)
@help_page(
    "cdp label photos --out album",
    "cdp label unlabeled --labeled labeled --out faces",
    Input="source labeled models input_kind corrections names",
    Result="out preset min_precision force",
    Machine="threads memory_budget device seed quiet",
)
@plain_errors()
def label(
    source: SourceArgument,
    *,
    out: OutOption,
    labeled: LabeledOption = None,
    models: ModelsOption = None,
    input_kind: InputKindOption = "auto",
    corrections: CorrectionsOption = None,
    names: NamesOption = None,
    detector: DetectorOption = None,
    base: BaseOption = None,
    validation: ValidationOption = None,
    trained_mediator: MediatorOption = None,
    knn: KnnOption = None,
    cache: CacheOption = None,
    dim: DimOption = None,
    quote_formulas: QuoteOption = False,
    seed: SeedOption = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
    given: Given,
) -> None:
    """Find identities in photos, face crops or embeddings, and write a collection.

    The collection can be shown, reviewed, corrected, extended and exported. Embeddings and photos are
    referred to, not copied. Without --labeled the threshold is estimated.
    """
    from cdp.cli.terminal import plain_warnings
    from cdp.runtime.progress import progress_bars

    settings = settings_from(ConsensusSettings, given, ConsensusSettings.of)
    kind = find_kind(source, input_kind, quiet=quiet)
    files = Files(source, labeled, validation, trained_mediator, knn or (), base, dim, corrections, names)
    how = Labeling(out, settings, seed, cache, quote_formulas, force, quiet)
    with progress_bars(not quiet) as progress, plain_warnings():
        runtime = how.open_runtime(settings_from(RuntimeSettings, given), progress)
        if kind == "embeddings":
            label_embeddings(files, how, runtime)
        else:
            files.check_for_photos()
            photos = settings_from(PhotoOptions, given).scan(source)
            align = settings_from(AlignSettings, given, _aligning(kind))
            label_photos(photos, (source, models, detector, base), how, align, runtime)


@dataclass(frozen=True)
class Labeling:
    """How `cdp label` works, apart from what it reads: the folder to write, settings and options."""

    out: Path
    settings: ConsensusSettings
    seed: int = 0
    cache: Path | None = None
    quote_formulas: bool = False
    force: bool = False
    quiet: bool = False

    def open_runtime(self, engine: RuntimeSettings, progress: Progress) -> Runtime:
        """Temporary files are stored next to the output, on storage that all nodes of a cluster see."""
        from cdp.runtime.memory import return_freed_memory
        from cdp.runtime.runtime import Runtime
        from cdp.runtime.step_cache import StepCache

        return_freed_memory()
        return Runtime(engine, StepCache(self.cache), progress, folder=self.out.absolute().parent)


def _aligning(kind: str) -> Any:
    """Return settings of alignment; crops are faces already."""
    from functools import partial

    return partial(AlignSettings, ready="all") if kind == "faces" else AlignSettings


def label_photos(
    photos: PhotoScan,
    given: tuple[str, Path | None, Path | None, str | None],
    how: Labeling,
    align: AlignSettings,
    runtime: Runtime,
) -> None:
    """Create a collection from photos.

    `given` holds the source, the model folder, the detector and the name of the base model.

    Without a folder, the models are downloaded.
    """
    from cdp.cli.photo_summary import print_notes, print_photos
    from cdp.cli.signals import resumable
    from cdp.faces.align_photos import CROP_BYTES
    from cdp.run.photo_collection import add_photos, replace_album
    from cdp.run.photo_models import open_photo_models
    from cdp.storage.files import LEAST_ROOM, artifact_kind, check_output, check_writable

    (source, models, detector, base), out = given, how.out
    refuse_output_among(source, out)
    check_writable(out, max(LEAST_ROOM, CROP_BYTES * len(photos.photos)), "crops of the faces")
    if artifact_kind(out) == "Collection":
        if not how.force:
            raise OutputExistsError(
                f"{out} already exists; add photos with cdp add {out} {source}, or replace it with --force.",
                code="output-exists",
                file=out,
            )
        check_output(out, force=True, kind="Collection", inputs=[source, models, detector])
    opened = open_photo_models(
        models,
        detector=detector,
        base=base,
        device=runtime.settings.device,
        needs_detector=align.ready != "all",
        progress=runtime.progress,
    )
    print_notes(opened.licenses)
    make = replace_album if artifact_kind(out) == "Collection" else add_photos
    with resumable():
        added = make(photos, opened, out, align, how.settings, seed=how.seed, runtime=runtime)
    print_notes(opened.notes)
    print_photos(added, out, quiet=how.quiet)


def refuse_output_among(source: str, out: Path) -> None:
    """Faces that are written among the photos would be taken for photos."""
    if Path(source).is_dir() and Path(os.path.realpath(out)).is_relative_to(os.path.realpath(source)):
        raise InputError(
            f"--out {out} is inside {source}: its faces would be taken for photos; choose another folder.",
            code="output-among-photos",
            file=out,
            folder=source,
        )


class Files:
    """The files that `cdp label` reads embeddings and what is known of them from."""

    def __init__(
        self,
        unlabeled: str,
        labeled: Path | None = None,
        validation: Path | None = None,
        mediator: Path | None = None,
        knn: Sequence[str] = (),
        base: str | None = None,
        dim: int | None = None,
        corrections: Path | None = None,
        names: Path | None = None,
    ) -> None:
        if labeled is not None and mediator is not None:
            raise InputError(
                "--labeled and --trained-mediator are both given; leave one out.",
                code="labeled-and-mediator-given",
            )
        self.unlabeled, self.labeled, self.validation = Path(unlabeled), labeled, validation
        self.mediator, self.knn, self.corrections, self.names = mediator, knn, corrections, names
        self.how: dict[str, Any] = {
            name: one for name, one in (("dim", dim), ("base", base)) if one is not None
        }

    def check_for_photos(self) -> None:
        """Refuse what goes with embeddings only."""
        given = {
            "--labeled": self.labeled,
            "--validation": self.validation,
            "--trained-mediator": self.mediator,
            "--knn": self.knn,
            "--corrections": self.corrections,
            "--names": self.names,
        }
        for option, value in given.items():
            if value:
                raise InputError(
                    f"{option} applies to embeddings; for photos, embed them first: cdp data align, then cdp "
                    "embed.",
                    code="option-needs-embeddings",
                    option=option,
                )

    @property
    def inputs(self) -> list[Path]:
        """All of them that are given."""
        graphs = [Path(entry.partition("=")[2] or entry) for entry in self.knn]
        given = (
            self.unlabeled, self.labeled, self.validation, self.mediator, self.corrections, self.names,
            *graphs
        )  # fmt: skip
        return [one for one in given if one is not None]

    def read(self, runtime: Runtime) -> tuple[Views, Views | None, Views | None]:
        """Unlabeled, labeled and validation part, seen by the same models."""
        from cdp.data.views import read_views
        from cdp.labeling.view_checks import check_same_models

        unlabeled = read_views(self.unlabeled, **self.how, runtime=runtime)
        others = []
        for path in (self.labeled, self.validation):
            part = None if path is None else read_views(path, **self.how, runtime=runtime)
            if part is not None:
                check_same_models({path: part, self.unlabeled: unlabeled})
            others.append(part)
        return unlabeled, others[0], others[1]

    def said(self, unlabeled: Views) -> tuple[dict[int, str], list[Correction]]:
        """Return the names of labeled identities, and what is known of the images."""
        from cdp.collection.correction_tables import read_correction_table, read_name_table

        people: dict[int, str] = {}
        known: list[Correction] = []
        if self.corrections is not None:
            known = read_correction_table(self.corrections, unlabeled.n_images, unlabeled.paths)
        if self.names is not None:
            people, more = read_name_table(self.names, unlabeled.n_images, unlabeled.paths)
            known += more
        return people, known

    def graphs(self, views: Views, k: int) -> dict[str, KnnGraph] | None:
        """Return the graphs of `--knn NAME=FILE` entries, cut to k neighbors."""
        from cdp.data.knn_files import read_knn
        from cdp.types import KnnGraph

        graphs = {}
        models = dict(zip(views.names, views, strict=True))
        for entry in self.knn:
            name, separator, file = entry.partition("=")
            if not separator or name not in models:
                raise InputError(
                    f"--knn {entry}: write NAME=FILE with a name from {', '.join(models)}.",
                    code="knn-option-wrong",
                    option="--knn",
                    value=entry,
                )
            graph = read_knn(file, models[name])
            if graph.k < k:
                raise InputError(
                    f"{file} has {graph.k} neighbors per image, --k asks for {k}.",
                    code="knn-file-too-few-neighbors",
                    file=file,
                    expected=k,
                    found=graph.k,
                )
            graphs[name] = KnnGraph(graph.neighbors[:, :k], graph.similarity[:, :k], f"file {file}")
        return graphs or None


def label_embeddings(files: Files, how: Labeling, runtime: Runtime) -> None:
    """Create a collection from given embeddings."""
    from cdp.cli.terminal import print_collection
    from cdp.collection.collection import open_collection
    from cdp.collection.collection_folder import KIND
    from cdp.collection.creation import Origin, label_into
    from cdp.collection.outputs import write_outputs
    from cdp.data.views import name_identities
    from cdp.storage.files import check_room, writing_folder

    if files.labeled is None and files.mediator is None and how.settings.mediator == "mlp":
        raise InputError(
            "No labels: give --labeled VIEWS or --trained-mediator FOLDER, or omit --mediator and --preset.",
            code="nothing-to-learn-from",
        )
    # Opened first: that the output cannot be written must not be found out after an hour of work.
    with writing_folder(how.out, force=how.force, kind=KIND, inputs=[*files.inputs, how.cache]) as folder:
        unlabeled, labeled, validation = files.read(runtime)
        # Of every image half of its pairs at least are written: two rows, and how similar they are.
        check_room(folder, 6 * unlabeled.n_images * how.settings.k, "the scored pairs")
        people, known = files.said(unlabeled)
        if files.labeled is not None and labeled is not None:
            people = name_identities(files.labeled, labeled.identities) | people
        origin = Origin(
            files.unlabeled,
            files.labeled,
            files.how,
            names=people,
            corrections=tuple(known),
            seed=how.seed,
        )
        label_into(
            folder,
            unlabeled,
            [] if labeled is None else [labeled],
            how.settings,
            origin,
            runtime,
            fitted=None if files.mediator is None else _with_mediator(how.settings, files.mediator),
            validation=validation,
            graphs=files.graphs(unlabeled, how.settings.k),
        )
        write_outputs(open_collection(folder), quote_formulas=how.quote_formulas)
    if not how.quiet:
        print_collection(open_collection(how.out), how.out)


def _with_mediator(settings: ConsensusSettings, file: Path) -> Fitted:
    from cdp.labeling.fitting import Fitted
    from cdp.scoring.mediator import Mediator

    mediator = Mediator.load(file)
    if settings.is_trained:
        settings = replace(settings, mediator="mlp", inputs=mediator.inputs)
    return Fitted(settings, mediator)
