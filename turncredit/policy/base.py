"""The base model: built from scratch with a tokenizer trained on the demonstrations' text, or fetched by name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from turncredit.config import ScratchConfig
from turncredit.data.transcript_markers import MARKERS
from turncredit.errors import UserError
from turncredit.policy import tokenizer as tokenizers
from turncredit.policy.hub import MODEL_FILES, SAVE_AGAIN, lacking


def new_base(
    demos: pa.Table,
    settings: ScratchConfig,
    folder: Path,
    *,
    own_columns: Sequence[str] = (),
    vocabulary: Sequence[str] = (),
) -> dict[str, float]:
    """Write a newly built model and its tokenizer to `folder`; returns its size in parameters and tokens.

    The tokenizer is trained on the demonstrations' observations and actions and on the agent's `own_columns`, and has
    one token for each text of the agent's `vocabulary`.
    """
    from turncredit.policy.models import new_model

    tokenizer = tokenizers.train(
        corpus(demos, own_columns), MARKERS, settings.vocab, folder, settings.max_positions, whole=vocabulary
    )
    model = new_model(
        settings,
        len(tokenizer),
        pad_id=tokenizer.pad_id,
        eos_id=tokenizer.eos_id,
        bos_id=tokenizer.encode(tokenizers.BOS)[0],
    )
    model.save_pretrained(folder)
    return {"parameters": float(sum(p.numel() for p in model.parameters())), "vocabulary": float(len(tokenizer))}


def corpus(demos: pa.Table, own_columns: Sequence[str] = ()) -> Iterator[str]:
    """The text that a new tokenizer is trained on: all observations and actions of a demonstration.

    `own_columns` are text columns, besides the action, from which the agent builds its responses; nulls are left out.
    Texts begin with a space, as they do after a marker, so that a word is the same token everywhere.
    """
    own = [
        name for name in own_columns if name in demos.column_names and pa.types.is_string(demos.schema.field(name).type)
    ]
    for name in ("goal", "observation", "action", "next_observation", *own):
        for text in demos.column(name).drop_null().to_pylist():
            yield f" {text}"
    for actions in demos.column("admissible").to_pylist():
        yield from (f" {action}" for action in actions)


def fetch_base(
    name: str, revision: str | None, folder: Path, *, chat_template: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Copy the files of a local folder or of a hub model to `folder`, so that an experiment is self-contained.

    `chat_template` are settings for the model's chat template; policies that are trained from this model keep them.
    Returns the size of its vocabulary, `thinks` (1) if the template lets the model think unless it is told not to, and
    `other_end` (1) if the template ends replies with another token than the tokenizer's `eos_token`.
    Raises UserError for anything else, and for settings that the template does not read.
    """
    source = Path(name)
    if not source.is_dir():
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

        try:
            source = Path(snapshot_download(name, revision=revision, allow_patterns=list(MODEL_FILES)))
        except (HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError, OSError) as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(
                f"policy.source '{name}' is neither a local folder nor a model that the hub provides ({reason})"
            ) from None
    if (lack := lacking(source, "policy")) is not None:
        raise UserError(f"policy.source '{source}' has no {lack}; {SAVE_AGAIN}")
    for file in sorted(source.iterdir()):
        if file.is_file() and any(file.match(pattern) for pattern in MODEL_FILES):
            shutil.copyfile(file, folder / file.name)
    if chat_template:
        tokenizers.set_chat_template(folder, chat_template)
    thinks = "enable_thinking" in tokenizers.template_of(folder) and "enable_thinking" not in (chat_template or {})
    tokenizer = tokenizers.load(folder)
    other_end = tokenizer.has_chat_template and not tokenizer.ends_replies()
    traits = {"thinks": thinks, "other_end": other_end}
    return {"vocabulary": float(len(tokenizer)), **{name: 1.0 for name, has in traits.items() if has}}
