"""The shared cache of answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pytest

from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.judges.cache import DATABASE, OLD_JOURNAL, Answer, Cache, Question

ANSWER = Answer('{"role": "E"}', "stop", 500, 20, 0.05)


def question(prompt: str) -> Question:
    return Question("tiny", "role", "role-1", prompt, "{}")


def put(cache: Cache, *prompts: str, answer: Answer = ANSWER) -> None:
    """Store an answer to each of these questions."""
    for one in prompts:
        cache.put(question(one).key(), question(one), answer)
    cache.commit()


def stored(folder: Path, *prompts: str) -> list[Answer | None]:
    with Cache(folder) as cache:
        cache.load([question(one).key() for one in prompts])
        return [cache.get(question(one).key()) for one in prompts]


def rows(folder: Path) -> int:
    """How many answers the tables hold."""
    return duckdb.sql(f"select count(*) from '{folder}/answers-*.parquet'").fetchall()[0][0]


def test_an_answer_is_there_for_the_next_who_opens_the_cache(tmp_path: Path) -> None:
    prompt = "a\r\nprompt with \u2028 odd line ends"
    with Cache(tmp_path) as cache:
        assert cache.get(question(prompt).key()) is None
        put(cache, prompt)
        assert cache.get(question(prompt).key()) == ANSWER
        assert stored(tmp_path, prompt) == [ANSWER]  # another job's, meanwhile
    assert stored(tmp_path, prompt, "other") == [ANSWER, None]


def test_any_part_of_a_question_changes_its_key() -> None:
    one = question("x")
    others = [one._replace(**{field: "changed"}) for field in Question._fields]
    assert len({part.key() for part in (one, *others)}) == 6


def test_parts_of_a_question_do_not_run_into_each_other() -> None:
    assert Question("a", "bc", "", "", "").key() != Question("ab", "c", "", "", "").key()


def test_answers_become_one_table_that_anyone_can_query(tmp_path: Path) -> None:
    for at in range(3):
        with Cache(tmp_path) as cache:
            put(cache, str(at), answer=ANSWER._replace(tokens_in=at))
    (path,) = tmp_path.glob("answers-*.parquet")
    assert tables.metadata(path)["schema"] == "judge_cache"
    assert duckdb.sql(f"select prompt, tokens_in from '{path}' order by 1").fetchall() == [("0", 0), ("1", 1), ("2", 2)]


def test_the_later_answer_is_kept_and_only_that(tmp_path: Path) -> None:
    for at in range(3):
        with Cache(tmp_path) as cache:
            put(cache, "x", "y", answer=ANSWER._replace(tokens_in=at))
            put(cache, "x", answer=ANSWER._replace(tokens_in=at + 10))
    assert stored(tmp_path, "x", "y") == [ANSWER._replace(tokens_in=12), ANSWER._replace(tokens_in=2)]
    assert rows(tmp_path) == 2


def test_of_answers_in_tables_too_large_to_be_merged_the_later_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turncredit.judges.cache._SMALL", 0)
    for at in range(5):
        with Cache(tmp_path) as cache:
            put(cache, "x", str(at), answer=ANSWER._replace(tokens_in=at))
        assert stored(tmp_path, "x") == [ANSWER._replace(tokens_in=at)]
    assert len([*tmp_path.glob("answers-*.parquet")]) == 5


def test_a_job_that_died_while_it_moved_its_answers_stores_none_twice(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        put(cache, "x")
    (small,) = tmp_path.glob("answers-*.parquet")
    shutil.copy(small, tmp_path / "merged")
    with Cache(tmp_path) as cache:
        put(cache, "y")
        shutil.copy(tmp_path / DATABASE, tmp_path / "before")
    (tmp_path / "merged").rename(small)
    (tmp_path / "before").rename(tmp_path / DATABASE)
    assert stored(tmp_path, "x", "y") == [ANSWER] * 2
    assert rows(tmp_path) == 2


def test_the_database_shrinks_when_its_answers_are_moved(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        put(cache, *map(str, range(50)), answer=ANSWER._replace(answer="x" * 10_000))
        assert (tmp_path / DATABASE).stat().st_size > 500_000
    assert (tmp_path / DATABASE).stat().st_size < 50_000


def test_jobs_see_what_others_have_committed_and_move_it_when_they_leave(tmp_path: Path) -> None:
    with Cache(tmp_path) as staying:
        with Cache(tmp_path) as leaving:
            put(staying, "first")
            assert leaving.get(question("first").key()) is None
            put(leaving, "second")
            assert leaving.get(question("first").key()) == ANSWER
        assert rows(tmp_path) == 2
        put(staying, "third")
    assert stored(tmp_path, "first", "second", "third") == [ANSWER] * 3
    assert rows(tmp_path) == 3


def test_jobs_that_come_write_and_leave_at_once_lose_nothing(tmp_path: Path) -> None:
    def job(name: int) -> None:
        for at in range(5):
            with Cache(tmp_path) as cache:
                cache.load([])
                put(cache, *(f"{name} {at} {part}" for part in range(8)), "of all")

    jobs = [threading.Thread(target=job, args=(name,)) for name in range(4)]
    for one in jobs:
        one.start()
    for one in jobs:
        one.join()
    prompts = [f"{name} {at} {part}" for name in range(4) for at in range(5) for part in range(8)]
    assert stored(tmp_path, *prompts, "of all") == [ANSWER] * 161
    assert rows(tmp_path) == 161


def test_a_job_killed_during_a_commit_loses_only_that(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom tests.judges.test_cache import Cache, put\n"
        f"cache = Cache({str(tmp_path)!r})\nput(cache, *map(str, range(100)))\n"
        "cache._database.execute('PRAGMA cache_size = 1')\n"  # pages go to the file before the commit
        "with cache._transaction():\n"
        "    cache._database.execute(\"UPDATE answers SET prompt = 'damaged'\")\n"
        "    print('killed now', flush=True)\n    sys.stdin.read()\n"
    )
    job = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert job.stdout.readline() == "killed now\n"
    assert (tmp_path / f"{DATABASE}-journal").exists()
    job.kill()
    job.communicate()
    assert stored(tmp_path, *map(str, range(100))) == [ANSWER] * 100
    assert duckdb.sql(f"select count(*) from '{tmp_path}/answers-*.parquet' where prompt = 'damaged'").fetchall() == [
        (0,)
    ]


def test_a_full_disk_is_one_clear_line_and_spoils_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    put(cache, "before")
    cache._database.execute("PRAGMA max_page_count = 8")
    with pytest.raises(UserError, match=f"{DATABASE}: .*disk is full") as caught:
        put(cache, "after", answer=ANSWER._replace(answer="x" * 100_000))
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="disk is full"):
        cache.close()
    assert stored(tmp_path, "before", "after") == [ANSWER, None]


def test_the_cache_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    with Cache(tmp_path / "old") as cache:
        put(cache, "in the table")
    line = {"key": question("in the journal").key(), **question("in the journal")._asdict(), **ANSWER._asdict()}
    tmp_path.joinpath("old", DATABASE).unlink()
    tmp_path.joinpath("old", OLD_JOURNAL).write_text(json.dumps(line) + '\n{"key": "dead", "answ')
    for _ in range(2):
        assert stored(tmp_path / "old", "in the table", "in the journal") == [ANSWER] * 2
    assert not tmp_path.joinpath("old", OLD_JOURNAL).exists()
    assert rows(tmp_path / "old") == 2


@pytest.mark.parametrize(
    ("broken", "healed"),
    [
        ({"tokens_in": "10"}, ANSWER._replace(tokens_in=None)),
        ({"tokens_in": 2**40, "tokens_out": 10.5}, ANSWER._replace(tokens_in=None, tokens_out=None)),
        ({"finish_reason": 3}, ANSWER._replace(finish_reason=None)),
        ({"answer": ["E"]}, None),
        ({"prompt": 3}, None),
        ({"seconds": None}, None),
        ({"seconds": 10**400}, None),
    ],
)
def test_a_broken_line_of_an_old_journal_is_healed_or_left_out(
    tmp_path: Path, broken: dict[str, object], healed: Answer | None
) -> None:
    line = {"key": question("bad").key(), **question("bad")._asdict(), **ANSWER._asdict(), **broken}
    (tmp_path / OLD_JOURNAL).write_text(json.dumps(line) + "\n" + '{"a":' * 100_000 + "\n")
    with Cache(tmp_path) as cache:
        put(cache, "good")
    assert stored(tmp_path, "bad", "good") == [healed, ANSWER]


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/cache: the judge's cache cannot be opened there"):
        Cache(tmp_path / "file" / "cache")


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "answers-0000.parquet").write_bytes(b"PAR1 nonsense")
    with Cache(tmp_path) as cache, pytest.raises(UserError, match=r"answers-0000.parquet: not a readable Parquet file"):
        cache.load(["x"])


@pytest.mark.parametrize("start", [0, 4096])
def test_a_damaged_database_is_named_and_nothing_of_it_becomes_an_answer(tmp_path: Path, start: int) -> None:
    with Cache(tmp_path) as cache:
        put(cache, *map(str, range(100)))
        shutil.copy(tmp_path / DATABASE, tmp_path / "whole")
    data = bytearray((tmp_path / "whole").read_bytes())
    data[start : start + 20_000] = bytes(range(256)) * 79
    (tmp_path / DATABASE).write_bytes(data)
    with pytest.raises(UserError, match=r"malformed|not a database") as caught:
        stored(tmp_path, "1")
    assert str(tmp_path) in str(caught.value)
