"""Pool of finished stages, linked instead of repeated by all runs that share it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from cdp.errors import OutputExistsError
from cdp.run.stages import Ledger, Record, Stage, read_record, remove
from cdp.storage.files import link_tree, sweep, write_json, writing_folder

_RECORD = "record.json"


class Pool:
    """Finished stages by key; `KEY/record.json` and what was made, under the paths it has in a run's folder.

    An entry appears whole, by one renaming, and never changes. Files are hard links where the disk allows it,
    so ten runs that share a network hold it once. A stage clears its old outputs before it runs and never
    writes into a file that is there, so a link is never written through; what is damaged all the same is
    found by its hash.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fetch(self, stage: Stage, key: str, ledger: Ledger) -> Record | None:
        """Link what a stage of this key made into a run's folder; None if there is none, or it is damaged."""
        entry = self.folder / key
        if not stage.is_shared:
            return None
        try:
            record = read_record(entry / _RECORD)
        except OSError:
            return None
        if record is None:
            return None
        for path in stage.makes.values():
            remove(ledger.folder / path)
            if not link_tree(entry / "made" / path, ledger.folder / path):
                return None
        if record.key != key or ledger.digests(stage) != dict(record.makes):
            shutil.rmtree(entry)
            return None
        # Last, so that a run killed before this line finds no record and fetches again.
        ledger.write(stage, record)
        ledger.hashes.save()
        return record

    def publish(self, stage: Stage, record: Record, ledger: Ledger) -> None:
        """Let other runs have what this stage made."""
        entry = self.folder / record.key
        if not stage.is_shared or entry.exists():
            return
        # Another run may publish the same meanwhile.
        with suppress(OutputExistsError), writing_folder(entry) as partial:
            for path in stage.makes.values():
                link_tree(ledger.folder / path, partial / "made" / path)
            write_json(partial / _RECORD, asdict(record))

    def sweep(self) -> None:
        """Clear what killed runs left half-published; what living ones are about to publish stays."""
        sweep(self.folder)
