"""The original's files: their two forms, and what is known of the 1,000 products."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.envs.conftest import DATA
from tests.envs.playing import play
from tests.envs.test_webshop_tasks import first_hit
from turncredit.envs.webshop import ENVIRONMENT, Settings, make_tasks, open_task
from turncredit.envs.webshop.catalogue import data_files
from turncredit.envs.webshop.goals import human_goals, synthetic_goals
from turncredit.envs.webshop.reward import NO_LIMIT, Goal, score
from turncredit.envs.webshop.shop import SUB_PAGES
from turncredit.envs.webshop.tasks import open_shop, real_split
from turncredit.envs.webshop.world import WebShop
from turncredit.errors import UserError

ITEM = {
    "asin": "B012345678", "name": "Oak Stool", "full_description": "A stool.",
    "small_description": ["Solid oak", "Round"],
    "pricing": "$1,019.99$1,100.50", "query": " Stools ", "product_category": "Home › Seats", "images": [None],
    "customization_options": {"Color": [{"value": " Grey/White "}, {"value": "Red", "image": None}], "Size": None},
}  # fmt: skip
OAK = ["solid oak"]
ATTRIBUTES = {
    "B012345678": {"attributes": OAK, "instruction": "Find me stools", "instruction_attributes": OAK},
}
HUMAN = {
    "B012345678": [
        {"instruction": "a grey stool.", "instruction_attributes": OAK, "instruction_options": ["grey | white"]},
        {"instruction": "nothing asked", "instruction_attributes": [], "instruction_options": []},
    ]
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The original's layout with three rows: a product, the same again, and one without a name."""
    items = [ITEM, {**ITEM, "name": "Again"}, {**ITEM, "asin": "nan"}, {**ITEM, "asin": "B2", "pricing": None}]
    (tmp_path / "items_shuffle_1000.json").write_text(json.dumps(items))
    (tmp_path / "items_ins_v2_1000.json").write_text(json.dumps(ATTRIBUTES))
    (tmp_path / "items_human_ins.json").write_text(json.dumps(HUMAN))
    return tmp_path


def real(folder: Path, **changes) -> Settings:
    return Settings(source="real", data_root=str(folder), **changes)


@pytest.mark.parametrize("pricing", ["€10", "10.99", "N/A", "", None])
def test_a_product_whose_price_is_missing_or_not_in_dollars_costs_100(folder, pricing):
    (folder / "items_shuffle_1000.json").write_text(json.dumps([ITEM, {**ITEM, "asin": "B2", "pricing": pricing}]))
    assert open_shop(real(folder)).products[1].prices == (100.0,)


def test_raw_items_are_read_as_the_original_reads_them(folder):
    first, second = open_shop(real(folder)).products
    assert first.title == "Oak Stool"
    assert first.options == {"color": ("grey | white", "red")}
    assert first.prices == (1019.99, 1100.5)
    assert first.price_tag == "$1019.99 to $1100.5"
    assert first.query == "stools"
    assert first.contents == "oak stool a stool. solid oak color: grey | white, red"
    assert (second.prices, second.price_tag, second.attributes) == ((100.0,), "$100.0", ("DUMMY_ATTR",))


def test_the_full_catalogue_gets_the_full_annotations(folder, capsys):
    every = [ITEM, *({**ITEM, "asin": f"B{n}"} for n in range(9))]
    (folder / "items_shuffle.json").write_text(json.dumps(every))
    full = real(folder / "items_shuffle.json")
    (folder / "items_ins_v2.json").write_text(json.dumps({one["asin"]: ATTRIBUTES["B012345678"] for one in every}))
    assert {product.attributes for product in open_shop(full).products} == {("solid oak",)}
    assert [path.name for path in data_files(real(folder))[:2]] == ["items_shuffle_1000.json", "items_ins_v2_1000.json"]
    assert capsys.readouterr().err == ""
    (folder / "items_ins_v2.json").unlink()
    open_shop(full)
    assert "items_ins_v2_1000.json has no attributes of 9 of the 10 products in" in capsys.readouterr().err


def test_a_price_within_a_range_is_drawn_once_for_all_processes(folder):
    price = open_shop(real(folder)).products[0].price
    assert price == pytest.approx(1086.70, abs=0.01)
    assert price == open_shop(real(folder)).products[0].price


def test_synthetic_goals_are_all_combinations_of_options(folder):
    goals = list(synthetic_goals(open_shop(real(folder)).products))
    assert [goal.options for goal in goals] == [(("color", "grey | white"),), (("color", "red"),)]
    assert goals[0].instruction == "Find me stools with color: grey | white"
    assert goals[0].limit == NO_LIMIT  # no two multiples of 10 up to 990 are above the price


def test_people_s_goals_have_options_without_names_and_need_attributes(folder):
    (goal,) = human_goals(open_shop(real(folder, goals="human")).products)
    assert (goal.instruction, goal.options) == ("a grey stool", (("", "grey | white"),))
    (folder / "items_human_ins.json").unlink()
    with pytest.raises(UserError, match=r"items_human_ins\.json: there is no such file; goals 'human' need it"):
        open_shop(real(folder, goals="human", page_size=9))


def test_documents_of_the_index_are_read_too(folder):
    product = {**ITEM, "pricing": [5.0], "options": {"color": ["red"]}}
    path = folder / "documents_1k.jsonl"
    document = {"id": "B012345678", "contents": "own\u2028text", "product": product}  # as written, it ends no line
    path.write_text(json.dumps(document, ensure_ascii=False) + "\n")
    found = open_shop(real(path)).products[0]
    assert (found.prices, found.options, found.contents) == ((5.0,), {"color": ("red",)}, "own\u2028text")


def test_missing_and_damaged_files_are_errors_that_name_them(tmp_path, monkeypatch):
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)
    with pytest.raises(UserError, match="set data_root"):
        open_shop(Settings(source="real"))
    with pytest.raises(UserError, match=r"there is no .*elsewhere"):
        open_shop(real(tmp_path / "elsewhere"))
    products, attributes = "items_shuffle_1000.json", "items_ins_v2_1000.json"
    for name, text, said in (
        ("other.json", "", "no file of products"),
        (products, "[{}]", "no file of attributes"),
        (attributes, "{}", "product 0 is not as WebShop writes it"),
        (products, "[{", r"items_shuffle_1000\.json: not JSON"),
        (products, "[]", "no products"),
        *(
            (products, text, r"items_shuffle_1000\.json: not a list of products")
            for text in ("5", "null", '{"asin": 1}')
        ),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(UserError, match=said):
            open_shop(real(tmp_path))


def test_a_split_that_is_unknown_or_too_small_is_an_error(folder):
    with pytest.raises(UserError, match=r"unknown split 'valid'.*choose one of test, eval, train"):
        make_tasks("valid", 1, 0, real(folder))
    with pytest.raises(UserError, match="the split 'test' of WebShop has 2 goals, not 3"):
        make_tasks("test", 3, 0, real(folder))


# ---------------------------------------------------------------- the 1,000 products


@pytest.fixture(scope="module")
def thousand() -> Settings:
    folder = DATA / "webshop"
    if not (folder / "documents_1k.jsonl").exists():
        pytest.skip("no webshop/documents_1k.jsonl: the original's data are not part of the project")
    return real(folder)


def test_the_thousand_products_give_6910_goals_and_the_original_s_splits(thousand):
    assert len(open_shop(thousand).products) == 1000
    sizes = {split: len(real_split(split, thousand)) for split in ("test", "eval", "train")}
    assert sizes == {"test": 500, "eval": 1000, "train": 5410}
    assert len(real_split("train", thousand.model_copy(update={"splits": "verl-agent"}))) == 6410


def test_every_goal_can_be_reached_and_93_percent_with_the_original_s_comparison_of_colours(thousand):
    shop = open_shop(thousand)
    perfect = {False: 0, True: 0}
    for goal in synthetic_goals(shop.products):
        own = shop.by_asin[goal.asin]
        for original in perfect:
            total = score(own, [value for _, value in goal.options], goal, own, original_colors=original).total
            perfect[original] += total == 1.0
    assert perfect == {False: 6910, True: 6452}


#: sha256 of the four pages of each product, a line each, as the original's templates give them in its mode `text`
#: without the instruction (rendered by jinja2, read by BeautifulSoup's html.parser)
ORIGINAL_PAGES = "bcbafdd5b15f41723d0760656c977b81b3c028af3f563b0ebccb495e7aee67d0"


def test_the_pages_of_every_product_are_the_original_s(thousand):
    shop = open_shop(thousand)
    pages = [shop.product_page(p.asin, name) for p in shop.products for name in ("item", *SUB_PAGES)]
    assert hashlib.sha256("\n".join(pages).encode()).hexdigest() == ORIGINAL_PAGES


def test_an_option_value_with_two_spaces_is_clicked_with_one(thousand):
    shop = open_shop(thousand)
    product = next(p for p in shop.products if any("  " in v for values in p.options.values() for v in values))
    value = next(v for values in product.options.values() for v in values if "  " in v)
    goal = Goal(product.asin, "", (), (("", value),), 1_000.0)
    for written in (value, " ".join(value.split())):
        env = WebShop(shop, goal, thousand)
        env.reset()
        for action in (f"search[{product.title}]", f"click[{product.asin}]"):
            env.step(action)
        assert env.step(f"click[{written}]").valid
        assert env.score().options == 1


def test_the_expert_beats_the_rule_of_the_first_hit_on_the_real_test_split(thousand):
    rows = make_tasks("test", 60, 0, thousand)
    won = [play(ENVIRONMENT, row, thousand)[-1].step.success for row in rows]
    assert sum(won) > sum(first_hit(open_task(row, thousand)) for row in rows) + 10


def test_a_real_goal_can_be_bought(thousand):
    row = make_tasks("test", 1, 0, thousand)[0]
    env = open_task(row, thousand)
    env.reset()
    title = open_shop(thousand).by_asin[env.goal.asin].title
    actions = [f"search[{title}]", f"click[{env.goal.asin}]", *(f"click[{value}]" for _, value in env.goal.options)]
    assert all(env.step(action).valid for action in actions)
    assert env.step("click[buy now]").reward == 1.0


def test_searches_with_the_words_of_a_goal_find_its_product(thousand):
    shop = open_shop(thousand)
    goals = [goal for _, goal in real_split("test", thousand)][:200]
    found = [goal.asin in {shop.products[n].asin for n in shop.search(goal.instruction)} for goal in goals]
    assert sum(found) >= 190
