"""A minimal tokenizer read from a folder, and the training of a tokenizer from scratch.

`load` reads `tokenizer.json` with the `tokenizers` library alone: importing transformers takes seconds, and only a
chat template needs it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from turncredit.errors import UserError, nearest

PAD, EOS, BOS = "<pad>", "<|im_end|>", "<s>"

# Words, numbers and punctuation are separate. "mug 1" is two tokens: the goal says "mug", and a small model learns to
# match the same token far sooner than to tell that "mug 1" is a mug (held-out loss per action 1.8 against 2.1 nats
# after the same SFT time).
_WORD = r" ?[A-Za-z']+| ?[0-9]+|\n|[^\sA-Za-z0-9]| "
#: In a model's folder: the settings that its chat template gets. Trained policies have a copy.
TEMPLATE_SETTINGS = "chat_template_settings.json"
#: The most tokens of texts, and the most words, whose ids are remembered. A token takes about 40 bytes with its text.
_REMEMBERED_TOKENS, _REMEMBERED_WORDS = 4_000_000, 100_000
#: What a remembered text takes beside its tokens, in tokens.
_ENTRY = 20

#: Between words in training; the byte-level alphabet has another character for it, so no word contains it.
_BREAK = "\n"


class Tokenizer:
    """Text to ids and back. `eos_id` ends a response; `chat` renders messages where there is a template.

    `special_tokens` are the texts that stand for tokens of no text, such as the end of a turn. `chat_settings` are what
    the template takes besides messages, such as Qwen3's `enable_thinking`. It is read from `folder` when first used.
    """

    def __init__(
        self,
        backend: Backend,
        eos: str,
        pad: str | None,
        folder: Path,
        has_chat_template: bool,
        chat_settings: Mapping[str, Any] | None = None,
    ):
        self._backend, self.folder = backend, folder
        self.chat_settings = dict(chat_settings or {})
        self.eos_text = eos
        self.eos_id = self._special(eos)
        self.pad_id = self._special(pad) if pad else self.eos_id
        self.has_chat_template = has_chat_template
        added = backend.get_added_tokens_decoder()
        self.special_tokens = tuple(token.content for _, token in sorted(added.items()) if token.special)
        self._word_pattern = _word_pattern(backend)
        self._ids_of_text: dict[str, list[int]] = {}
        self._remembered = 0
        self._ids_of_word: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return self._backend.get_vocab_size()

    def _special(self, token: str) -> int:
        number = self._backend.token_to_id(token)
        if number is None:
            raise UserError(f"{self.folder}: the tokenizer names '{token}' as a special token but does not have it")
        return number

    def encode(self, text: str) -> list[int]:
        """Ids of a text; special tokens in it are recognised, none is added. Returns a new list each time."""
        ids = self._ids_of_text.get(text)
        if ids is None:
            ids = self._by_word(text)
            self._remembered += len(ids) + _ENTRY
            if self._remembered > _REMEMBERED_TOKENS:
                self._ids_of_text.clear()
                self._remembered = len(ids) + _ENTRY
            self._ids_of_text[text] = ids
        return list(ids)

    def _by_word(self, text: str) -> list[int]:
        """The ids of a text whose words are encoded one by one, a word that was seen before only once.

        This takes a fifth of the time of encoding the whole text, which matters for contexts that are rebuilt every
        turn.
        """
        # Outside of ASCII the two libraries' patterns need not agree on what is a space.
        words = self._word_pattern.findall(text) if self._word_pattern is not None and text.isascii() else []
        if sum(map(len, words)) != len(text):
            return self._whole(text)
        ids_of = self._ids_of_word
        if len(ids_of) >= _REMEMBERED_WORDS:
            ids_of.clear()
        ids: list[int] = []
        for word in words:
            word_ids = ids_of.get(word)
            if word_ids is None:
                word_ids = ids_of[word] = self._whole(word)
            ids += word_ids
        return ids

    def _whole(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a response, without special tokens."""
        return self._backend.decode(list(ids), skip_special_tokens=True)

    def chat(self, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None) -> str:
        """Messages rendered by the model's own chat template, up to the start of the assistant's reply.

        `tools` are declarations in the form of the OpenAI API (`turncredit.data.tools.Toolbox.declarations`).
        """
        settings = self.chat_settings
        return self._full.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, tokenize=False, **settings
        )

    def ends_replies(self) -> bool:
        """Whether the chat template ends a reply with `eos_text`, where sampling stops; true if it renders no reply."""
        from jinja2 import TemplateError

        user, reply = {"role": "user", "content": "question"}, "\x01reply\x01"
        try:
            whole = self.chat([user, {"role": "assistant", "content": reply}, user])
        except TemplateError:
            return True
        return self.eos_text in whole.rpartition(reply)[2]

    @cached_property
    def _full(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder)


def load(folder: str | Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder. Raises UserError where the folder has none."""
    folder = Path(folder)
    file, config_file = folder / "tokenizer.json", folder / "tokenizer_config.json"
    if not file.exists() or not config_file.exists():
        raise UserError(f"{folder}: not a tokenizer folder (tokenizer.json and tokenizer_config.json are needed)")
    config = json.loads(config_file.read_text(encoding="utf-8"))

    def text(name: str) -> str | None:
        value = config.get(name)
        return value["content"] if isinstance(value, dict) else value

    template = "chat_template" in config or (folder / "chat_template.jinja").exists()
    settings_file = folder / TEMPLATE_SETTINGS
    settings = json.loads(settings_file.read_text()) if settings_file.exists() else {}
    backend = Backend.from_file(str(file))
    return Tokenizer(backend, text("eos_token") or EOS, text("pad_token"), folder, template, settings)


def template_of(folder: Path) -> str:
    """The text of the chat template of the model in `folder`; "" if it has none."""
    file = folder / "chat_template.jinja"
    config = json.loads((folder / "tokenizer_config.json").read_text())
    return file.read_text() if file.exists() else str(config.get("chat_template") or "")


def set_chat_template(folder: Path, settings: Mapping[str, Any]) -> None:
    """Let the chat template of the model in `folder` get these settings.

    A template ignores what it does not know, so a setting whose name is not in its text raises UserError.
    """
    template = template_of(folder)
    if not template:
        raise UserError(f"policy.chat_template: the model in {folder} has no chat template; leave the setting out")
    names = set(re.findall(r"[A-Za-z_]\w*", template))
    for name in settings:
        if name not in names:
            hint = nearest(name, names)
            raise UserError(f"policy.chat_template: the model's chat template does not read '{name}'{hint}")
    (folder / TEMPLATE_SETTINGS).write_text(json.dumps(dict(settings), sort_keys=True))


def _splitter() -> pre_tokenizers.PreTokenizer:
    """Of tokenizers from scratch: words, then bytes."""
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_WORD), "isolated"), bytes_only])


def _word_pattern(backend: Backend) -> re.Pattern[str] | None:
    """The pattern of whatever a tokenizer from scratch encodes by itself: its added tokens, then words. Else None."""
    splitter = backend.pre_tokenizer
    if splitter is None or splitter.__getstate__() != _splitter().__getstate__():
        return None
    added = sorted((token.content for token in backend.get_added_tokens_decoder().values()), key=len, reverse=True)
    return re.compile("|".join([*map(re.escape, added), _WORD]))


def _word_counts(texts: Iterable[str], splitter: pre_tokenizers.PreTokenizer) -> Counter[str]:
    """How often each word occurs, in the byte-level alphabet."""
    words: Counter[str] = Counter()
    for text, count in Counter(texts).items():
        for word, _ in splitter.pre_tokenize_str(text):
            words[word] += count
    return words


def _repeated(words: Counter[str], at_once: int = 1000) -> Iterator[str]:
    """Each word repeated as often as it occurs, in lines of at most `at_once`."""
    for word, count in words.items():
        line = _BREAK.join([word] * min(count, at_once))
        yield from repeat(line, count // at_once)
        if count % at_once:
            yield _BREAK.join([word] * (count % at_once))


def train(
    texts: Iterable[str],
    markers: Sequence[str],
    vocab: int,
    folder: str | Path,
    max_length: int,
    whole: Sequence[str] = (),
) -> Tokenizer:
    """Train a byte-level BPE tokenizer of `vocab` tokens on `texts` and save it as a Hugging Face folder.

    A token never spans words, so frequent words become one token each; bytes remain as a fallback for every other
    text. `markers` become special tokens, which `decode` leaves out; each text of `whole` becomes one plain token, in
    addition to the `vocab`.
    """
    backend = Backend(models.BPE())
    splitter = _splitter()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[PAD, EOS, BOS, *markers],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Training only needs to know how often each word occurs. Demonstrations repeat themselves: splitting each distinct
    # text once, and passing on the words, takes a third of the time.
    backend.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(_BREAK)
    backend.train_from_iterator(_repeated(_word_counts(texts, splitter)), trainer)
    backend.pre_tokenizer, backend.decoder = splitter, decoders.ByteLevel()
    backend.add_tokens([AddedToken(text, normalized=False, special=False) for text in whole])
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS,
        "bos_token": BOS,
        "pad_token": PAD,
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return load(folder)
