"""`cdp-lab study`: the paper's tables and figures, as variants of a recipe over several seeds."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdp.cli.app import (
    ForceOption,
    LinesOption,
    PlanOption,
    QuietOption,
    by_commas,
    make_app,
    plain_errors,
    print_table,
)
from cdp.cli.derived_options import Given
from cdp.cli.help_pages import Command, help_page
from cdp.cli.recipe_options import with_recipe
from cdp.cli.signals import resumable
from cdp.errors import InputError
from cdp_lab.cli.lab_app import app
from cdp_lab.study.catalog import SENTENCES

if TYPE_CHECKING:
    from cdp.config.sections import RunRecipe
    from cdp_lab.study.design import Study
    from cdp_lab.study.execute import Job

study = make_app(
    "The paper's tables and figures: variants of a recipe over several seeds, what they share made once."
)
app.add_typer(study, name="study")


@study.command("list", cls=Command)
def list_studies() -> None:
    """Name all studies with a sentence."""
    for name, sentence in SENTENCES.items():
        typer.echo(f"{name:<18}{sentence}")


@study.command(cls=Command)
@plain_errors()
def page(
    folders: Annotated[list[Path], typer.Argument(help="What `cdp-lab study --out` wrote, one or several.")],
    out: Annotated[Path, typer.Option("--out", help="Markdown file to write.", show_default=False)],
    force: ForceOption = False,
) -> None:
    """One Markdown page of several studies, each table above the paper's.

    A file remarks.md in a study's folder is set below its tables; one next to the page opens it.
    """
    from cdp.storage.files import check_output, write_text
    from cdp_lab.study.study_page import comparison_page, read_chapters, read_remarks

    check_output(out, force=force, inputs=folders)
    write_text(out, comparison_page(read_chapters(folders, out), read_remarks(out.parent)))


def _command(name: str) -> Callable[..., None]:
    @with_recipe
    @help_page(
        f"cdp-lab study {name} recipe.toml --out study",
        Input="recipe seeds variants sizes methods pair_recall",
        Result="out pool plan",
        Machine="engine__threads quiet as_json",
    )
    @plain_errors()
    def command(
        recipe: Annotated[str, typer.Argument(help="A recipe of `cdp run` that all variants start from.")],
        out: Annotated[
            Path,
            typer.Option(
                "--out",
                help="The study's folder; an interrupted study goes on in it.",
                show_default=False,
            ),
        ],
        overrides: Given,
        seeds: Annotated[
            int, typer.Option(help="How many seeds, from the recipe's on.", min=1, max=10**4)
        ] = 3,
        variants: Annotated[
            str | None, typer.Option(help="Only these variants, by commas; --plan names all.")
        ] = None,
        sizes: Annotated[str | None, typer.Option(help="Numbers of images, by commas; for runtime.")] = None,
        methods: Annotated[str | None, typer.Option(help="Which methods, by commas; for baselines.")] = None,
        pair_recall: Annotated[
            float,
            typer.Option(
                help="Share of the true pairs that committees accept; for committee_size.", min=0, max=1
            ),
        ] = 0.313,
        pool: Annotated[
            Path | None,
            typer.Option(
                help="Folder of finished stages: studies given the same one train the same networks once "
                "[default: pool in --out]."
            ),
        ] = None,
        plan: PlanOption = False,
        quiet: QuietOption = False,
        as_json: LinesOption = False,
    ) -> None:
        from cdp.config.reading import read_recipe
        from cdp_lab.study.catalog import find_study
        from cdp_lab.study.design import Options
        from cdp_lab.study.execute import make_jobs

        start, known = read_recipe(recipe, overrides), find_study(name)
        options = Options(_numbers(sizes), by_commas(methods), pair_recall)
        jobs = make_jobs(known, start, out, n_seeds=seeds, variants=by_commas(variants), options=options)
        if plan:
            _show_plan(name, out, jobs, as_json=as_json)
        else:
            _run(known, start, out, jobs, pool, quiet=quiet, as_json=as_json)

    return command


for _name, _sentence in SENTENCES.items():
    study.command(_name, help=_sentence, cls=Command)(_command(_name))


def _numbers(words: str | None) -> tuple[int, ...]:
    from cdp_lab.study.design import Options

    if words is None:
        return Options().sizes
    for word in by_commas(words) or ("",):
        if not re.fullmatch("[0-9]{3,12}", word) or int(word) < 100:
            raise InputError(
                f"--sizes {word}: a number of images, 100 or more, is needed.",
                code="sizes-not-numbers",
                option="--sizes",
                value=word,
            )
    return tuple(int(word) for word in by_commas(words) or ())


def _run(
    study: Study,
    recipe: RunRecipe,
    out: Path,
    jobs: Sequence[Job],
    pool: Path | None,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    from cdp.cli.terminal import listening, say_line
    from cdp.cli.train_commands import typed_command
    from cdp_lab.cli.study_terminal import StudyLines, StudyTerminal
    from cdp_lab.study.execute import StudyListener, run_study
    from cdp_lab.study.result_tables import table_of

    with (
        resumable(),
        listening(StudyListener, StudyLines, StudyTerminal, as_json=as_json, quiet=quiet) as listener,
    ):
        command = typed_command(sys.argv[1:], "cdp-lab")
        results = run_study(study, recipe, out, jobs, pool=pool, command=command, listener=listener)
    if as_json:
        about = {"study": study.name, "folder": str(out), "rows": results["rows"]}
        say_line("study", {**about, "seconds": round(results["seconds"], 1)})
    elif not quiet:
        header, rows = table_of(results)
        columns = [head if at < len(study.heads) else f">{head}" for at, head in enumerate(header)]
        print_table(study.title, columns, rows)
        typer.echo(f"Open {out / 'study.html'} in a browser.")


def _show_plan(name: str, out: Path, jobs: Sequence[Job], *, as_json: bool) -> None:
    from cdp.cli.terminal import say_line
    from cdp.web.words import counted
    from cdp_lab.study.execute import plan_study

    planned = plan_study(jobs)
    if as_json:
        for one in planned:
            about = {"variant": one.job.variant.slug, "seed": one.job.seed, "kept": one.n_kept}
            say_line("plan", {**about, "shared": one.n_shared, "runs": list(one.runs)})
        return
    rows = []
    for one in planned:
        first = ", ".join(one.runs[:3]) + (" …" if len(one.runs) > 3 else "")
        counts = (one.job.seed, one.n_kept, one.n_shared, len(one.runs))
        rows.append((one.job.variant.slug, *map(str, counts), first))
    columns = ("variant", ">seed", ">kept", ">shared", ">runs", "what runs")
    print_table(f"What cdp-lab study {name} would do in {out}", columns, rows)
    n_runs = sum(len(one.runs) for one in planned)
    n_shared = sum(one.n_shared for one in planned)
    typer.echo(
        f"{counted(n_runs, 'stage')} to run in {counted(len(planned), 'run')}; {n_shared} more are shared "
        "with an earlier variant."
    )
