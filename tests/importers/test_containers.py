"""The same records come out of every container; what is damaged is a counted, named skip or one line."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import turncredit
from tests.importers import files
from turncredit.bridges import importers
from turncredit.bridges.importers import containers
from turncredit.bridges.importers.base import Report
from turncredit.data import json_lines, tables
from turncredit.errors import UserError

ROWS = [
    {"group_id": f"g{group}", "rollout_id": f"r{number}", "reward": reward, "messages": files.messages(number)}
    for group, number, reward in files.ROLLOUTS
]
LINES = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in ROWS)


def zipped(members: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def parquet() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), buffer)
    return buffer.getvalue()


def tar() -> bytes:
    """A compressed archive with a file for each rollout."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for number, row in enumerate(ROWS):
            text = json.dumps(row).encode()
            member = tarfile.TarInfo(f"{number}.jsonl")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return buffer.getvalue()


CONTAINERS: dict[str, bytes] = {
    "lines": LINES.encode(),
    "lines without a last newline": LINES.rstrip("\n").encode(),
    "lines with empty ones between": LINES.replace("\n", "\r\n\r\n").encode(),
    "lines after a byte order mark": b"\xef\xbb\xbf" + LINES.encode(),
    "UTF-16, little end first": b"\xff\xfe" + LINES.encode("utf-16-le"),
    "UTF-16, big end first": b"\xfe\xff" + LINES.encode("utf-16-be"),
    "an array": json.dumps(ROWS).encode(),
    "an array over many lines": json.dumps(ROWS, indent=2).encode(),
    "an array in UTF-16": b"\xff\xfe" + json.dumps(ROWS, indent=1).encode("utf-16-le"),
    "objects over many lines": "\n".join(json.dumps(row, indent=2) for row in ROWS).encode(),
    "gzip": gzip.compress(LINES.encode()),
    "xz": lzma.compress(json.dumps(ROWS).encode()),
    "Zstandard": pa.Codec("zstd").compress(LINES.encode(), asbytes=True),
    "a ZIP archive of lines": zipped({"rollouts.jsonl": LINES, "notes.txt": "none"}),
    "a ZIP archive of objects": zipped({f"{number}.json": json.dumps(row) for number, row in enumerate(ROWS)}),
    "Parquet": parquet(),
}


@pytest.mark.parametrize("name", ["mine.jsonl", "mine"])
@pytest.mark.parametrize("container", sorted(CONTAINERS))
def test_the_same_turns_come_out_of_every_container(container: str, name: str, tmp_path: Path) -> None:
    """Whatever the file is called."""
    path = tmp_path / name
    path.write_bytes(CONTAINERS[container])
    report = importers.run([path], tmp_path / "out.parquet", strict=True)
    assert (report.rollouts, report.turns, report.skipped) == (4, 8, {})
    found = tables.read(tmp_path / "out.parquet")
    assert sorted(set(found["rollout_id"].to_pylist())) == ["r0", "r1", "r2", "r3"]
    assert found["action"].to_pylist()[:2] == ["go to A", "take key"]
    assert found["reward"].to_pylist()[1::2] == list(files.REWARDS)


TEXT = st.text(max_size=20)


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.dictionaries(TEXT, TEXT | st.integers(), min_size=1, max_size=3), min_size=1),
    indent=st.sampled_from([None, 0, 3]),
    chunk=st.integers(1, 40),
    layout=st.sampled_from(["array", "one after the other"]),
)
def test_records_do_not_depend_on_where_a_buffer_ends(
    rows: list[dict[str, Any]], indent: int | None, chunk: int, layout: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "rows.json"
    texts = [json.dumps(row, indent=indent) for row in rows]
    path.write_text(f"[{', '.join(texts)}]" if layout == "array" else "\n".join(texts), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(containers, "CHUNK", chunk)
        found = [record for _, record in containers.records(path, Report(strict=True))]
    assert found == rows


def test_a_file_a_rollout_and_a_folder_of_them(tmp_path: Path) -> None:
    for number, row in enumerate(ROWS):
        (tmp_path / "runs" / str(number)).mkdir(parents=True)
        (tmp_path / "runs" / str(number) / "run.json").write_text(json.dumps(row["messages"], indent=1))
    report = importers.run([tmp_path / "runs"], tmp_path / "out.parquet")
    assert (report.files, report.rollouts, report.turns) == (4, 4, 8)
    assert set(tables.read(tmp_path / "out.parquet")["rollout_id"].to_pylist()) == {f"{n}/run" for n in range(4)}


def test_a_pipe_and_the_standard_input_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(LINES))
    writer.start()
    report = importers.run([pipe], tmp_path / "out.parquet")
    writer.join()
    assert report.rollouts == 4
    assert tables.read(tmp_path / "out.parquet")["source"][0].as_py() == f"{pipe}:1"


def test_the_standard_input_is_a_file_called_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CONTAINERS["gzip"]), encoding="utf-8"))
    done = turncredit("import", "-", "--out", tmp_path / "out.parquet")
    assert (done.returncode, "4 rollouts" in done.stdout) == (0, True)
    assert tables.read(tmp_path / "out.parquet")["source"][0].as_py() == "stdin:1"


def test_a_log_of_inspect_that_zstandard_compressed_is_read(tmp_path: Path) -> None:
    """As Inspect writes them with Python 3.14: made here by hand, since the library of Python 3.13 cannot."""
    text = json.dumps(files.sample(0)).encode()
    packed = pa.Codec("zstd").compress(text, asbytes=True)
    info = zipfile.ZipInfo("samples/s0_epoch_1.json")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(info, packed)
    raw = buffer.getvalue()
    for signature, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = raw.index(signature) + place
        raw = raw[:at] + (93).to_bytes(2, "little") + raw[at + 2 :]
    path = tmp_path / "log.eval"
    path.write_bytes(raw)
    assert importers.run([path], tmp_path / "out.parquet").turns == 2


def nested(depth: int) -> str:
    return '{"messages": ' + "[" * depth + "]" * depth + "}"


#: what a file holds, and the reason that is given
DAMAGED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "it is empty"),
    "spaces": (b" \n\n ", "it is empty"),
    "a ZIP that is cut off": (CONTAINERS["a ZIP archive of lines"][:-60], "a ZIP archive that ends in the middle"),
    "gzip that is cut off": (CONTAINERS["gzip"][:20], "compressed data that end in the middle"),
    "Zstandard that is cut off": (CONTAINERS["Zstandard"][:40], "compressed data that end in the middle"),
    "a tar archive": (tar(), "a tar archive; unpack it, and give the folder"),
    "a page": (b"<html><body>Not found</body></html>", "not JSON"),
    "an array of numbers": (b"[1, 2, 3]", "not a JSON object"),
    "an array that is nested too deeply": (f"[{nested(200_000)}]".encode(), "JSON nested too deeply"),
    "a log of Inspect without samples": (zipped({"header.json": "{}", "summaries.json": "[]"}), "without samples"),
    "patches": (b'{"instance_id": "a", "model_patch": "diff"}', "patches, not rollouts"),
    "tasks": (b'{"question": "1+1", "answer": "2"}', "tasks, not rollouts"),
    "outcomes": (b'{"resolved_ids": ["a"], "unresolved_ids": []}', "outcomes of a benchmark, not rollouts"),
    "something else": (b'{"alpha": 1}', "unknown format"),
    "a system prompt alone": (b'[{"role": "system", "content": "x"}]', "the policy wrote no message"),
}


@pytest.mark.parametrize("case", sorted(DAMAGED))
def test_what_holds_no_rollouts_is_refused_in_one_line_with_the_reason(case: str, tmp_path: Path) -> None:
    data, reason = DAMAGED[case]
    path = tmp_path / "mine.json"
    path.write_bytes(data)
    with pytest.raises(UserError, match=reason) as raised:
        importers.run([path], tmp_path / "out.parquet")
    message = str(raised.value)
    assert "\n" not in message
    assert not any(word in message for word in ("Error", "Exception", "Traceback"))
    assert not (tmp_path / "out.parquet").exists()


def test_a_zip_bomb_is_refused_with_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            with archive.open(f"{number}.json", "w", force_zip64=True) as member:
                for _ in range(400):
                    member.write(b" " * 2**20)
    with pytest.raises(UserError, match=r"a ZIP archive of 1200 MiB once it is unpacked, .*1000 times"):
        importers.run([path], tmp_path / "out.parquet")


@pytest.mark.parametrize("layout", ["an array", "an array over many lines"])
def test_what_stands_before_the_end_of_an_array_that_is_cut_off_is_read(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(CONTAINERS[layout][:-80])
    report = importers.run([path], tmp_path / "out.parquet")
    assert report.rollouts == 3
    assert list(report.skipped) == ["JSON that ends in the middle"]


def test_a_record_of_an_array_that_is_too_long_is_a_skip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "LONGEST_DOCUMENT", 2 * containers.CHUNK)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps([*ROWS, {"group_id": "x" * 16 * containers.CHUNK}]))
    report = importers.run([path], tmp_path / "out.parquet")
    assert report.rollouts == 4
    assert list(report.skipped) == ["a record longer than 2 MiB"]


def test_formats_may_be_mixed_in_a_folder_and_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    for write in (files.verifiers, files.tau_bench, files.tau2, files.inspect):
        write(folder)
    (folder / "tasks.json").write_text('[{"question": "1+1", "answer": "2"}]')
    report = importers.run([folder], tmp_path / "out.parquet")
    assert report.formats == {"tau-bench": 4, "inspect": 4, "tau2": 4, "verifiers": 4}
    assert [reason.partition(":")[0] for reason in report.skipped] == ["tasks, not rollouts"]


def test_more_skipped_than_read_is_a_failure_unless_it_is_allowed(tmp_path: Path) -> None:
    path = files.lines(tmp_path / "mine.jsonl", [*ROWS[:1], *({**row, "reward": "high"} for row in ROWS[1:])])
    arguments = ["import", str(path), "--out", str(tmp_path / "out.parquet")]
    done = turncredit(*arguments)
    assert (done.returncode, (tmp_path / "out.parquet").exists()) == (2, False)
    assert "more was skipped (3) than read" in done.stderr
    assert "reward is not a number" in done.stderr
    assert turncredit(*arguments, "--allow-skips").returncode == 0
    assert tables.read(tmp_path / "out.parquet").num_rows == 2


def test_an_error_of_ours_that_reading_raises_has_no_name_in_the_message(tmp_path: Path) -> None:
    rows: list[Callable[[], Any]] = [
        lambda: {"traces": {"a": 1}},
        lambda: {"traces": [{"nodes": [{"sampled": True, "message": 3}], "rewards": []}], "group": {"id": 1}},
        lambda: {"steps": [{"source": "agent", "message": {}, "metrics": 3}]},
        lambda: {"tokens": 1, "masks": 2, "scores": 3},
        lambda: {"responses_create_params": [], "response": 1},
        lambda: {"simulations": {"a": 1}},
        lambda: {"task_id": 1, "trial": 2, "traj": 3},
        lambda: {"trajectories": 3, "task_hash": 1, "episode_id": 2},
        lambda: {"history": [{"kind": "ActionEvent", "tool_call": 3}]},
        lambda: {"history": [1], "mistake_agent": "a", "mistake_step": "b"},
    ]
    path = files.lines(tmp_path / "mine.jsonl", [row() for row in rows])
    with pytest.raises(UserError) as raised:
        importers.run([path], tmp_path / "out.parquet")
    assert not any(word in str(raised.value) for word in ("Error", "Exception"))


def test_a_csv_file_is_refused_with_what_to_give_instead(tmp_path: Path) -> None:
    path = tmp_path / "turns.csv"
    path.write_text("group_id,rollout_id,turn,reward\ng,r,0,1.0\n")
    with pytest.raises(UserError, match=r"turns\.csv: a table as text; write it as Parquet or JSON lines"):
        importers.run([path], tmp_path / "out.parquet")


def test_the_bound_of_a_line_holds_for_the_first_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "LONGEST", 2000)
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"messages": "x" * 5000}) + "\n" + LINES)
    report = importers.run([path], tmp_path / "out.parquet")
    assert report.rollouts == 4
    assert list(report.skipped) == [json_lines.too_long()]
