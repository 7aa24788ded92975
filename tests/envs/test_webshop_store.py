"""A catalogue on disk is the same shop as one in memory."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

from tests.envs.test_webshop_real import ATTRIBUTES, HUMAN, ITEM, folder, real, thousand
from turncredit.envs.webshop import catalogue, make_tasks, open_task
from turncredit.envs.webshop.commands import app
from turncredit.envs.webshop.store import Stored, build
from turncredit.envs.webshop.tasks import open_shop, real_split
from turncredit.errors import UserError

__all__ = ["ATTRIBUTES", "HUMAN", "ITEM", "folder", "thousand"]


@pytest.fixture
def stored(folder, tmp_path):
    out = tmp_path / "stored"
    said = CliRunner().invoke(app, ["index", "--data", str(folder), "--out", str(out)])
    assert f"2 products in {out}" in said.output
    return out


def test_products_goals_and_searches_are_the_same_as_in_memory(folder, stored):
    for goals in ("synthetic", "human"):
        memory, disk = (real(where, goals=goals, splits="verl-agent") for where in (folder, stored))
        assert real_split("test", disk) == real_split("test", memory)
        assert real_split("test", memory)
    one, other = open_shop(memory), open_shop(disk)
    for product in one.products:
        same = other.by_asin[product.asin]
        assert [getattr(same, name) for name in FIELDS] == [getattr(product, name) for name in FIELDS]
        assert other.product_page(product.asin, "item") == one.product_page(product.asin, "item")
    for query in ("oak stool", "red", "nothing like it", ""):
        assert other.search(query) == one.search(query)
    assert "B9" not in other.by_asin
    assert list(other.by_asin) == list(one.by_asin)


FIELDS = ("asin", "title", "bullets", "prices", "options", "attributes", "query", "path", "instruction", "human")


def test_a_rollout_in_a_stored_catalogue_can_be_won(stored):
    row = make_tasks("test", 1, 0, real(stored))[0]
    env = open_task(row, real(stored))
    env.reset()
    assert env.distance() == 4
    assert [env.step(action).success for action in env.oracle()] == [False, False, False, True]


def test_a_process_that_was_forked_has_its_own_connection(stored):
    shop = open_shop(real(stored))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, shop.by_asin["B2"].title.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"Oak Stool"
    assert shop.by_asin["B012345678"].title == "Oak Stool"


def test_a_folder_that_has_a_catalogue_or_a_damaged_one_is_an_error(stored):
    with pytest.raises(UserError, match="there is a catalogue already"):
        build([], stored)
    (stored / "lengths.npy").unlink()
    with pytest.raises(UserError, match=r"not a catalogue of this version .*lengths\.npy"):
        Stored(stored)
    (stored / "catalogue.sqlite").write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a catalogue of this version"):
        open_shop(real(stored, page_size=7))


def test_a_list_of_products_is_read_piece_by_piece(folder, monkeypatch):
    whole = open_shop(real(folder)).products
    monkeypatch.setattr(catalogue, "_READ_AT_ONCE", 7)
    again = catalogue.read_products(*catalogue.data_files(real(folder)))
    assert [product.title for product in again] == [product.title for product in whole]
    (folder / "items_shuffle_1000.json").write_text(json.dumps([ITEM])[:-5])
    with pytest.raises(UserError, match="not JSON"):
        catalogue.read_products(*catalogue.data_files(real(folder)))


def test_the_thousand_products_are_the_same_on_disk(thousand, tmp_path):
    memory = open_shop(thousand)
    assert build(memory.products, tmp_path / "out") == 1000
    disk = real(tmp_path / "out")
    assert real_split("test", disk) == real_split("test", thousand)
    queries = [product.title for product in memory.products[::20]]
    assert [open_shop(disk).search(query) for query in queries] == [memory.search(query) for query in queries]
