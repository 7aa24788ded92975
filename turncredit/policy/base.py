"""The base model: made from scratch with a tokenizer trained on the demonstrations' text, or fetched by name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from turncredit import tables
from turncredit.config import Experiment
from turncredit.errors import UserError
from turncredit.files import new_folder
from turncredit.markers import MARKERS
from turncredit.policy import tokenizer as tokenizers


def make_base(*, experiment: Experiment, demos: str | Path, out: str | Path) -> dict[str, float]:
    """Write the base model's folder (weights and tokenizer). Returns its size in parameters and tokens."""
    from turncredit.policy.models import new_model

    source = experiment.policy.source
    with new_folder(out) as folder:
        if source != "scratch":
            _fetch(experiment, folder)
            return {"vocabulary": float(len(tokenizers.load(folder)))}
        settings = experiment.policy.scratch
        texts = corpus(demos)
        tokenizer = tokenizers.train(texts, MARKERS, settings.vocab, folder, settings.max_positions)
        model = new_model(
            settings,
            len(tokenizer),
            pad_id=tokenizer.pad_id,
            eos_id=tokenizer.eos_id,
            bos_id=tokenizer.encode(tokenizers.BOS)[0],
        )
        model.save_pretrained(folder)
        return {"parameters": float(sum(p.numel() for p in model.parameters())), "vocabulary": float(len(tokenizer))}


def corpus(demos: str | Path) -> Iterator[str]:
    """The text that a from-scratch tokenizer learns from: everything a demonstration shows or says.

    Texts begin with a space, as they do after a marker, so that a word is the same token wherever it stands.
    """
    table = tables.read(demos, "demos")
    for name in ("goal", "observation", "action", "next_observation"):
        for text in table.column(name).to_pylist():
            yield f" {text}"
    for actions in table.column("admissible").to_pylist():
        yield from (f" {action}" for action in actions)


def _fetch(experiment: Experiment, folder: Path) -> None:
    """Copy a local folder, or a hub model's files, so that an experiment stands on its own."""
    source = Path(experiment.policy.source)
    if not source.is_dir():
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

        patterns = ["*.json", "*.safetensors", "*.txt", "*.jinja"]
        try:
            source = Path(
                snapshot_download(
                    experiment.policy.source, revision=experiment.policy.revision, allow_patterns=patterns
                )
            )
        except (HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError, OSError) as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(
                f"policy.source '{experiment.policy.source}' is neither a folder here nor a model that the hub "
                f"would give ({reason})"
            ) from None
    if not (source / "config.json").exists():
        raise UserError(f"policy.source '{source}' has no config.json; it is not a model folder")
    for file in sorted(source.iterdir()):
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
