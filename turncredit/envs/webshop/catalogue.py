"""Products, and reading them from the original's files.

Two forms of the original's data are read: its JSON (`items_shuffle_1000.json`, `items_shuffle.json`: a list of raw
items) and the documents of its search index (`documents*.jsonl`: a line per product, with the text that is indexed).
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turncredit.data.seeding import derive_seed
from turncredit.envs.webshop.settings import Settings
from turncredit.errors import UserError

PRODUCTS = (
    "items_shuffle_1000.json",
    "documents_1k.jsonl",
    "items_shuffle.json",
    "documents.jsonl",
    "documents_100.jsonl",
)
ATTRIBUTES = ("items_ins_v2.json", "items_ins_v2_1000.json")
THOUSAND = ("_1000", "_1k", "_100")
"""How the names of files end that have a thousand products or fewer: their annotations are looked for first."""
STORED = "catalogue.sqlite"
"""The file that makes a folder a catalogue on disk."""
HUMAN = "items_human_ins.json"
_NO_ATTRIBUTE = "DUMMY_ATTR"
_NO_PRICE = 100.0
_READ_AT_ONCE = 1 << 22
_BETWEEN = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """What the shop knows of a product. `options` maps names to values, all in lower case. Equal only to itself."""

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    prices: tuple[float, ...]
    """One price, or the ends of a range."""
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    query: str
    """The query under which it was found; products of one query are of one kind."""
    path: str
    """Its categories, from the widest, separated by ›."""
    contents: str
    """The text that is searched."""
    rating: str = "N.A."
    reviews: tuple[tuple[str, str, str], ...] = ()
    """Title, score and text."""
    instruction: str | None = None
    """What a synthetic goal says of it, without options and price."""
    instruction_attributes: tuple[str, ...] = ()
    human: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()
    """People's instructions for it: text, attributes, options."""

    @property
    def price_tag(self) -> str:
        """The price as pages show it."""
        return " to ".join(f"${price}" for price in self.prices)

    @property
    def price(self) -> float:
        """The price that is paid: within a range, one that is drawn for the product and never shown.

        The original draws it anew in every process, before it sets its seed, so its own rewards are not reproducible.
        """
        if len(self.prices) == 1:
            return self.prices[0]
        return random.Random(derive_seed("webshop", "price", self.asin)).uniform(*self.prices)


def check_data(settings: Settings) -> None:
    """Raise UserError, one line, where the original's catalogue is chosen and its files are not here."""
    if settings.source == "real" and stored_folder(settings) is None:
        data_files(settings)


def stored_folder(settings: Settings) -> Path | None:
    """`data_root` (or $WEBSHOP_DATA) where it is a catalogue on disk (`turncredit env webshop index`), else None."""
    given = settings.data_root or os.environ.get("WEBSHOP_DATA")
    folder = Path(given).expanduser() if given else None
    return folder if folder is not None and (folder / STORED).is_file() else None


def data_files(settings: Settings) -> tuple[Path, Path, Path | None]:
    """The files of products, attributes and, if they are asked for, people's instructions. Raises UserError."""
    given = settings.data_root or os.environ.get("WEBSHOP_DATA")
    if not given:
        raise UserError(
            "env.webshop: source 'real' needs the original's files; set data_root (or $WEBSHOP_DATA) to their folder"
        )
    root = Path(given).expanduser()
    if root.is_dir():
        products = _first(root, PRODUCTS, "products")
    elif root.is_file():
        products, root = root, root.parent
    else:
        raise UserError(f"env.webshop.data_root: there is no {root}; give the folder of the original's files")
    annotations = ATTRIBUTES[::-1] if products.stem.endswith(THOUSAND) else ATTRIBUTES
    human = root / HUMAN if settings.goals == "human" else None
    if human is not None and not human.is_file():
        raise UserError(f"{human}: there is no such file; goals 'human' need it, 'synthetic' do not")
    return products, _first(root, annotations, "attributes"), human


def _first(root: Path, names: Sequence[str], what: str) -> Path:
    for name in names:
        if (root / name).is_file():
            return root / name
    raise UserError(f"{root}: no file of {what} ({', '.join(names)}); download WebShop's data there")


def read_products(products: Path, attributes: Path, human: Path | None) -> list[Product]:
    """The products of the original's files, each once, in their order. Raises UserError for damaged files."""
    return list(each_product(products, attributes, human))


def each_product(products: Path, attributes: Path, human: Path | None) -> Iterator[Product]:
    """As `read_products`, one after the other; only their names and annotations stay in memory."""
    annotations = _json(attributes)
    people = _json(human) if human is not None else {}
    seen: set[str] = set()
    for number, item in enumerate(_items(products)):
        try:
            asin = item["asin"]
            if asin != "nan" and len(asin) <= 10 and asin not in seen:
                seen.add(asin)
                yield _product(item, annotations.get(asin, {}), people.get(asin, ()))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"{products}: product {number} is not as WebShop writes it ({type(error).__name__}: {error})"
            ) from error
    if not seen:
        raise UserError(f"{products}: no products in this file; download it again")
    bare = sum(asin not in annotations for asin in seen)
    if 2 * bare > len(seen):
        print(
            f"environment 'webshop': {attributes} has no attributes of {bare} of the {len(seen)} products in "
            f"{products}, which get no goals: is it the file that belongs to them?",
            file=sys.stderr,
        )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); download it again") from error


def _items(path: Path) -> Iterator[dict[str, Any]]:
    """Raw items one after the other, those of documents with the text of the index as `contents`."""
    if path.suffix != ".jsonl":
        yield from _of_list(path)
        return
    try:
        # Lines end at a line feed alone: a text may have other characters that end lines, such as U+2028.
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in filter(str.strip, file):
                row = json.loads(line)
                yield {**row["product"], "contents": row["contents"]}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not the documents of WebShop's index ({error}); download it again") from error


def _of_list(path: Path) -> Iterator[Any]:
    """The items of a JSON list, of which a part is in memory at a time."""
    decoder = json.JSONDecoder()
    with path.open(encoding="utf-8") as file:
        text = file.read(_READ_AT_ONCE).lstrip()
        if not text.startswith("["):
            _json(path)
            raise UserError(f"{path}: not a list of products; download it again")
        at = 1
        while True:
            at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
            if text.startswith("]", at):
                return
            try:
                item, at = decoder.raw_decode(text, at)
            except ValueError as error:
                more = file.read(_READ_AT_ONCE)
                if not more:
                    raise UserError(f"{path}: not JSON ({error}); download it again") from error
                text, at = text[at:] + more, 0
            else:
                yield item


def _product(item: Mapping[str, Any], annotation: Mapping[str, Any], people: Iterable[Mapping[str, Any]]) -> Product:
    bullets = item["small_description"]
    bullets = tuple(bullets) if isinstance(bullets, list) else (bullets,)
    options = _options(item)
    title, description = item["name"], item["full_description"] or ""
    return Product(
        asin=item["asin"],
        title=title,
        description=description,
        bullets=bullets,
        prices=_prices(item.get("pricing")),
        options=options,
        attributes=tuple(annotation.get("attributes", (_NO_ATTRIBUTE,))),
        query=item["query"].lower().strip(),
        path=item["product_category"],
        contents=item.get("contents") or contents_of(title, description, bullets[:1], options),
        rating=str(item.get("Rating", "N.A.")),
        reviews=tuple(
            (str(r.get("title", "")), str(r.get("score", r.get("stars", ""))), str(r.get("body", r.get("review", ""))))
            for r in item.get("Reviews", ())
        ),
        instruction=annotation.get("instruction"),
        instruction_attributes=tuple(annotation.get("instruction_attributes") or ()),
        human=tuple(
            (one["instruction"], tuple(one["instruction_attributes"]), tuple(one["instruction_options"]))
            for one in people
        ),
    )


def _prices(pricing: Any) -> tuple[float, ...]:
    """The price or range of raw items (a text such as `$10.99 - $1,200`) and of documents (a list).

    A text without a dollar sign has no price.
    """
    if not pricing:
        return (_NO_PRICE,)
    if isinstance(pricing, str):
        pricing = [re.sub(r"[^\d.]", "", part) for part in pricing.split("$")[1:]]
    return tuple(float(price) for price in pricing[:2]) or (_NO_PRICE,)


def _options(item: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    if "options" in item:
        return {name: tuple(values) for name, values in item["options"].items()}
    given = item["customization_options"] or {}
    return {
        name.lower(): tuple(value["value"].strip().replace("/", " | ").lower() for value in values)
        for name, values in given.items()
        if values is not None
    }


def contents_of(title: str, description: str, bullets: Sequence[str], options: Mapping[str, Sequence[str]]) -> str:
    """The text that is indexed; of a raw item the original takes the first bullet point."""
    option_text = ", and ".join(f"{name}: {', '.join(values)}" for name, values in options.items())
    return " ".join((title, description, *bullets, option_text)).lower()
