"""`cdp`: what can be typed. Options here, work elsewhere; nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cdp import __version__
from cdp.errors import CdpError

app = typer.Typer(
    help="Consensus-Driven Propagation: identities you can trust for a mass of unlabeled images.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
evaluation = typer.Typer(help="Measure results against true identities.", no_args_is_help=True)
app.add_typer(evaluation, name="eval")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors become one sentence and an exit code: 2 wrong input, 1 failure, 130 interrupted."""
    try:
        yield
    except CdpError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        typer.echo("Interrupted; no output folder was changed.", err=True)
        raise typer.Exit(130) from None
    except MemoryError:
        typer.echo("Error: out of memory; lower --memory-budget or --k, or use a larger machine.", err=True)
        raise typer.Exit(1) from None
    except BrokenPipeError:
        # The reader of a pipe has gone (`cdp show x | head`); that is not our failure.
        sys.stderr.close()
        raise typer.Exit(0) from None


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cdp {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """Consensus-Driven Propagation: identities you can trust for a mass of unlabeled images."""


OutOption = Annotated[Path, typer.Option("--out", help="Folder to write; must not exist unless --force.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the output folder if it is there.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress bars, no table.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of a table.")]


@app.command()
def label(
    unlabeled: Annotated[
        Path, typer.Argument(help="Views of the images to label: a folder, .npz, .parquet or .npy.")
    ],
    out: OutOption,
    learn_from: Annotated[
        Path | None,
        typer.Option(help="Views of the labeled part, with identities; the mediator learns here."),
    ] = None,
    mediator: Annotated[
        Path | None,
        typer.Option(help="A mediator folder that was learned before, instead of --learn-from."),
    ] = None,
    vote: Annotated[
        bool, typer.Option("--vote", help="Let the committee vote; no labeled part is needed.")
    ] = False,
    quorum: Annotated[
        int | None, typer.Option(help="With --vote: how many members must agree [default: all of them].")
    ] = None,
    similarity: Annotated[
        float | None, typer.Option(help="With --vote: base similarity must be greater than this.")
    ] = None,
    k: Annotated[int, typer.Option(help="Neighbors per image in every graph.")] = 20,
    threshold: Annotated[float, typer.Option(help="Accept a pair if its probability is greater.")] = 0.96,
    max_size: Annotated[int, typer.Option(help="Most images per identity.")] = 600,
    step: Annotated[float, typer.Option(help="How fast the threshold rises while a group is split.")] = 0.1,
    inputs: Annotated[
        str,
        typer.Option(help="What the mediator is told, by commas; add common_neighbors for better labels."),
    ] = "relationship,affinity,distribution",
    method: Annotated[
        str, typer.Option(help="k-NN search: auto (exact up to 50,000 images), exact or nndescent.")
    ] = "auto",
    knn: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FILE: use this k-NN file for a model of the unlabeled part; may be repeated."
        ),
    ] = None,
    keep_graphs: Annotated[
        Path | None,
        typer.Option(
            help="Keep every k-NN graph in this folder, and use it again where embeddings and k are the same."
        ),
    ] = None,
    depth: Annotated[
        int, typer.Option(help="Also write soft labels that travel this many steps; 0 = none.")
    ] = 0,
    decay: Annotated[float, typer.Option(help="With --depth: factor per step.")] = 0.2,
    base: Annotated[
        str | None, typer.Option(help="Name of the base model, for folders of .bin files.")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Dimensions, for .bin files without a list.")] = None,
    memory_budget: Annotated[str, typer.Option(help="Memory for blocks of opinions, e.g. 500MB.")] = "1GB",
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
    n_jobs: Annotated[int | None, typer.Option(help="Threads [default: all].")] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Give every unlabeled image a pseudo-identity, or a reason why it has none."""
    with plain_errors():
        from cdp.cli.label import LabelSettings, label_images

        label_images(
            LabelSettings(
                unlabeled=unlabeled,
                out=out,
                learn_from=learn_from,
                mediator=mediator,
                vote=vote,
                quorum=quorum,
                similarity=similarity,
                k=k,
                threshold=threshold,
                max_size=max_size,
                step=step,
                inputs=tuple(part.strip() for part in inputs.split(",") if part.strip()),
                method=method,
                knn=tuple(knn or ()),
                keep_graphs=keep_graphs,
                depth=depth,
                decay=decay,
                base=base,
                dim=dim,
                memory_budget=memory_budget,
                random_state=random_state,
                n_jobs=n_jobs,
                force=force,
                quiet=quiet,
            )
        )


@evaluation.command("labels")
def eval_labels(
    labels: Annotated[Path, typer.Argument(help="A labels folder, or a text file with one number per line.")],
    identities: Annotated[
        Path,
        typer.Option(help="True identities: .npy, a text file with one per line, or views that carry them."),
    ],
    json: JsonOption = False,
) -> None:
    """Pairwise and BCubed figures, NMI, coverage and sizes of labels."""
    with plain_errors():
        from cdp.cli.evaluate import evaluate_labels

        evaluate_labels(labels, identities, as_json=json)


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="A folder written by cdp.")],
    json: Annotated[bool, typer.Option("--json", help="Print the card as it is.")] = False,
) -> None:
    """What is this folder, and what was it made from?"""
    with plain_errors():
        from cdp.cli.show import show_folder

        show_folder(folder, as_json=json)


@app.command()
def demo(
    out: OutOption = Path("demo"),
    identities: Annotated[int, typer.Option(help="How many made-up people.")] = 1000,
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Label made-up embeddings four ways and compare, in under a minute, with no download."""
    with plain_errors():
        from cdp.cli.demo import run_demo

        run_demo(out, identities, random_state=random_state, force=force, quiet=quiet)


PictureOption = Annotated[
    Path | None, typer.Option(help="Also draw the curves into this .png, .svg or .pdf file.")
]
ReplicatesOption = Annotated[int, typer.Option(help="Resamplings of identities for intervals; 0 = none.")]
SeedOption = Annotated[int, typer.Option(help="Seed.")]
ThreadsOption = Annotated[int | None, typer.Option(help="Threads [default: all].")]


@evaluation.command("verification")
def eval_verification(
    embeddings: Annotated[
        Path, typer.Option(help="Views, .npy, or with --suffix a folder of MegaFace feature files.")
    ],
    pairs: Annotated[
        Path | None,
        typer.Option(help="pairs.csv (first_row,second_row,same), LFW's pairs.txt, or CALFW's or CPLFW's."),
    ] = None,
    pack: Annotated[Path | None, typer.Option(help="InsightFace pack, such as lfw.bin.")] = None,
    ijba: Annotated[Path | None, typer.Option(help="IJB-A folder with split1 ... split10.")] = None,
    ijb: Annotated[Path | None, typer.Option(help="IJB-B or IJB-C folder as InsightFace packs it.")] = None,
    list_: Annotated[
        Path | None, typer.Option("--list", help="Names of the embedded images, one per row.")
    ] = None,
    suffix: Annotated[
        str | None, typer.Option(help="What follows an image's path in a feature file's name.")
    ] = None,
    identities: Annotated[
        Path | None,
        typer.Option(help="Who every row shows, to resample people [default: told by same pairs]."),
    ] = None,
    flipped: Annotated[
        Path | None, typer.Option(help="Embeddings of the mirrored images, to be added.")
    ] = None,
    detector_scores: Annotated[
        bool, typer.Option("--detector-scores", help="With --ijb: weigh images by the detector's score.")
    ] = False,
    against: Annotated[
        Path | None, typer.Option(help="Another network's embeddings to compare with.")
    ] = None,
    against_flipped: Annotated[Path | None, typer.Option(help="Its mirrored images.")] = None,
    folds: Annotated[int, typer.Option(help="Folds, where the file does not say.")] = 10,
    fprs: Annotated[
        str, typer.Option(help="False positive rates, by commas.")
    ] = "1e-1,1e-2,1e-3,1e-4,1e-5,1e-6",
    replicates: ReplicatesOption = 1000,
    random_state: SeedOption = 0,
    n_jobs: ThreadsOption = None,
    picture: PictureOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the picture if it is there.")] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Are two images one person? Accuracy, TPR at FPR and equal error rate of embeddings."""
    with plain_errors():
        from cdp.cli.recognition import VerificationSettings, evaluate_verification, parse_numbers
        from cdp.cli.recognition_output import Output

        evaluate_verification(
            VerificationSettings(
                embeddings=embeddings,
                pairs=pairs,
                pack=pack,
                ijba=ijba,
                ijb=ijb,
                names=list_,
                suffix=suffix,
                identities=identities,
                flipped=flipped,
                detector_scores=detector_scores,
                against=against,
                against_flipped=against_flipped,
                folds=folds,
                fprs=parse_numbers(fprs, "--fprs", float),
                replicates=replicates,
                random_state=random_state,
                n_jobs=n_jobs,
            ),
            Output(json, picture, force, quiet),
        )


@evaluation.command("identification")
def eval_identification(
    probes: Annotated[
        Path, typer.Option(help="Views of the probes, or with --probe-list their feature files' folder.")
    ],
    distractors: Annotated[
        Path,
        typer.Option(help="Views of other people, or with --distractor-list their feature files' folder."),
    ],
    identities: Annotated[
        Path | None, typer.Option(help="Who the probes show, if their views do not say.")
    ] = None,
    probe_list: Annotated[Path | None, typer.Option(help="The MegaFace devkit's probe list.")] = None,
    distractor_list: Annotated[
        list[Path] | None, typer.Option(help="A distractor list of the devkit; may be repeated.")
    ] = None,
    suffix: Annotated[
        str, typer.Option(help="What follows an image's path in a feature file's name.")
    ] = ".bin",
    probe_noise: Annotated[Path | None, typer.Option(help="Probes to leave out, one name per line.")] = None,
    distractor_noise: Annotated[Path | None, typer.Option(help="Distractors to leave out.")] = None,
    against: Annotated[Path | None, typer.Option(help="Another network's probes to compare with.")] = None,
    against_distractors: Annotated[Path | None, typer.Option(help="Its distractors.")] = None,
    against_suffix: Annotated[
        str | None, typer.Option(help="Its feature files' suffix [default: same].")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Numbers of distractors, by commas [default: 10,100,... and all].")
    ] = None,
    ranks: Annotated[str, typer.Option(help="Ranks to report, by commas.")] = "1,5,10,20,50,100,1000",
    replicates: ReplicatesOption = 1000,
    random_state: SeedOption = 0,
    n_jobs: ThreadsOption = None,
    picture: PictureOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the picture if it is there.")] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Is a person found among distractors? Rank-1, the CMC curve and growing numbers of distractors."""
    with plain_errors():
        from cdp.cli.recognition import IdentificationSettings, evaluate_identification, parse_numbers
        from cdp.cli.recognition_output import Output

        evaluate_identification(
            IdentificationSettings(
                probes=probes,
                distractors=distractors,
                identities=identities,
                probe_list=probe_list,
                distractor_lists=tuple(distractor_list or ()),
                suffix=suffix,
                probe_noise=probe_noise,
                distractor_noise=distractor_noise,
                against=against,
                against_distractors=against_distractors,
                against_suffix=against_suffix,
                sizes=None if sizes is None else parse_numbers(sizes, "--sizes", int),
                ranks=parse_numbers(ranks, "--ranks", int),
                replicates=replicates,
                random_state=random_state,
                n_jobs=n_jobs,
            ),
            Output(json, picture, force, quiet),
        )


run: Callable[[], None] = app
