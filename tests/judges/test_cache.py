"""The shared table of answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.judges.cache import JOURNAL, Answer, Cache, Question

ANSWER = Answer('{"role": "E"}', "stop", 500, 20, 0.05)


def question(prompt: str) -> Question:
    return Question("tiny", "role", "role-1", prompt, "{}")


def test_an_answer_is_there_for_the_next_who_opens_the_cache(tmp_path: Path) -> None:
    asked = question("a\r\nprompt with \u2028 odd line ends")
    with Cache(tmp_path) as cache:
        assert cache.get(asked.key()) is None
        cache.put(asked.key(), asked, ANSWER)
        assert cache.get(asked.key()) == ANSWER
    with Cache(tmp_path) as cache:
        cache.load([asked.key()])
        assert cache.get(asked.key()) == ANSWER
        assert cache.get(question("other").key()) is None


def test_any_part_of_a_question_changes_its_key() -> None:
    one = question("x")
    others = [one._replace(**{field: "changed"}) for field in Question._fields]
    assert len({part.key() for part in (one, *others)}) == 6


def test_parts_of_a_question_do_not_run_into_each_other() -> None:
    assert Question("a", "bc", "", "", "").key() != Question("ab", "c", "", "", "").key()


def test_it_is_a_table_that_anyone_can_query(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        for at in range(3):
            cache.put(question(str(at)).key(), question(str(at)), ANSWER._replace(tokens_in=at))
    found = duckdb.sql(f"select sum(tokens_in), count(*) from '{tmp_path}/answers-*.parquet'").fetchall()
    assert found == [(3, 3)]
    (path,) = tmp_path.glob("answers-*.parquet")
    assert tables.metadata(path)["schema"] == "judge_cache"
    assert (tmp_path / JOURNAL).stat().st_size == 0


def test_small_files_are_folded_together_and_lose_nothing(tmp_path: Path) -> None:
    for at in range(5):
        with Cache(tmp_path) as cache:
            cache.put(question(str(at)).key(), question(str(at)), ANSWER)
    assert len(list(tmp_path.glob("answers-*.parquet"))) == 1
    with Cache(tmp_path) as cache:
        keys = [question(str(at)).key() for at in range(5)]
        cache.load(keys)
        assert all(cache.get(key) == ANSWER for key in keys)


def test_an_answer_in_both_the_table_and_the_journal_is_kept_once(tmp_path: Path) -> None:
    asked = question("x")
    with Cache(tmp_path) as cache:
        cache.put(asked.key(), asked, ANSWER)
        journal = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(journal)  # as if a job had died between the two steps of its leaving
    with Cache(tmp_path):
        pass
    (path,) = tmp_path.glob("answers-*.parquet")
    assert tables.read(path, "judge_cache").num_rows == 1


def test_a_journal_that_one_call_does_not_read_whole_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux reads 2 GiB at a time, and a whole sweep's prompts are more."""
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda file, count, start: whole(file, min(count, 100), start))
    keys = []
    with Cache(tmp_path) as cache:
        for at in range(10):
            asked = question(str(at))
            cache.put(asked.key(), asked, ANSWER)
            keys.append(asked.key())
    assert (tmp_path / JOURNAL).stat().st_size == 0
    with Cache(tmp_path) as cache:
        cache.load(keys)
        assert all(cache.get(key) == ANSWER for key in keys)


def test_half_a_line_of_a_dead_job_harms_neither_side(tmp_path: Path) -> None:
    first, second = question("first"), question("second")
    with Cache(tmp_path) as cache:
        cache.put(first.key(), first, ANSWER)
        with open(tmp_path / JOURNAL, "ab") as file:
            file.write(b'{"key": "dead", "answ')
        cache.put(second.key(), second, ANSWER)
        with Cache(tmp_path) as other:
            other.load([])
            assert other.get(first.key()) == other.get(second.key()) == ANSWER
            assert other.get("dead") is None


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
def test_a_broken_line_of_the_journal_is_healed_or_left_out(
    tmp_path: Path, broken: dict[str, object], healed: Answer | None
) -> None:
    bad, good = question("bad"), question("good")
    line = {"key": bad.key(), **bad._asdict(), **ANSWER._asdict(), **broken}
    (tmp_path / JOURNAL).write_text(json.dumps(line) + "\n" + '{"a":' * 100_000 + "\n")
    with Cache(tmp_path) as cache:
        cache.load([])
        assert cache.get(bad.key()) == healed
        cache.put(good.key(), good, ANSWER)
    with Cache(tmp_path) as cache:
        cache.load([bad.key(), good.key()])
        assert (cache.get(bad.key()), cache.get(good.key())) == (healed, ANSWER)
    assert (tmp_path / JOURNAL).stat().st_size == 0


def test_only_one_may_ask_a_question_at_a_time(tmp_path: Path) -> None:
    key, unrelated = question("x").key(), question("y").key()
    with Cache(tmp_path) as one, Cache(tmp_path) as two:
        assert one.claim(key)
        assert not two.claim(key)
        assert two.claim(unrelated)
        one.release(key)
        assert two.claim(key)


def test_one_cache_sees_what_another_has_put(tmp_path: Path) -> None:
    asked = question("x")
    with Cache(tmp_path) as one, Cache(tmp_path) as two:
        one.put(asked.key(), asked, ANSWER)
        assert two.get(asked.key()) is None
        two.refresh()
        assert two.get(asked.key()) == ANSWER


def test_the_claim_of_a_killed_process_is_free_again(tmp_path: Path) -> None:
    key = question("x").key()
    script = (
        "import os, sys\nfrom turncredit.judges.cache import Cache\n"
        f"cache = Cache({str(tmp_path)!r})\nassert cache.claim({key!r})\n"
        "print('claimed', flush=True)\nsys.stdin.read()\n"
    )
    job = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert job.stdout.readline() == "claimed\n"
    with Cache(tmp_path) as cache:
        assert not cache.claim(key)
        job.kill()
        job.wait()
        assert cache.claim(key)
    job.stdout.close()
    assert job.stdin is not None
    job.stdin.close()


def test_the_journal_stays_while_somebody_else_uses_it(tmp_path: Path) -> None:
    asked = question("x")
    with Cache(tmp_path) as staying:
        with Cache(tmp_path) as leaving:
            leaving.put(asked.key(), asked, ANSWER)
        assert (tmp_path / JOURNAL).stat().st_size > 0
        staying.refresh()
        assert staying.get(asked.key()) == ANSWER
    assert (tmp_path / JOURNAL).stat().st_size == 0


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/cache: the judge's cache cannot be opened there"):
        Cache(tmp_path / "file" / "cache")


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "answers-0000.parquet").write_bytes(b"PAR1 nonsense")
    with Cache(tmp_path) as cache, pytest.raises(UserError, match=r"answers-0000.parquet: not a readable Parquet file"):
        cache.load(["x"])
