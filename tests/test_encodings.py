"""Text in another encoding than UTF-8: on the terminal, and in files where the machine's own encoding is another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from turncredit.cli.streams import PLAIN

MAIN = "from turncredit.cli.main import main; main()"
#: A machine whose own encoding is not UTF-8. (`-X utf8=0`: Python would choose UTF-8 for the locale C by itself.)
OTHER_MACHINE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def run(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command line in a process with this environment."""
    command = [sys.executable, "-c", MAIN, *words]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, timeout=100, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Turns and their credit, with texts that neither ASCII nor ISO-8859-1 can write."""
    texts = {"action": ["öffne Tür", "→ 雪"], "next_observation": ["│", "Größe “x” – é…"], "observation": ["ä", "b"]}
    keys = {"group_id": ["g", "g"], "rollout_id": ["é", "é"], "turn": [0, 1], "reward": [0.0, 1.0]}
    pq.write_table(pa.table({**keys, **texts}), tmp_path / "turns.parquet")
    pq.write_table(pa.table({**keys, "advantage": [0.5, -0.5]}), tmp_path / "credits.parquet")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1"])
def test_what_a_terminal_cannot_show_is_replaced_and_no_command_fails(folder: Path, encoding: str) -> None:
    show = run("show", "turns.parquet", "g/é", "--credits", "credits.parquet", cwd=folder, PYTHONIOENCODING=encoding)
    assert (show.returncode, show.stderr) == (0, b"")
    said = show.stdout.decode(encoding)
    assert "> -> \\u96ea" in said
    assert ("öffne" in said, "\\xf6ffne" in said) == (encoding != "ascii", encoding == "ascii")
    assert "####" in said
    csv = run("sql", "from turns", "--file", "turns.parquet", "--format", "csv", cwd=folder, PYTHONIOENCODING=encoding)
    assert csv.returncode == 0
    assert '"x" - ' in csv.stdout.decode(encoding).replace("'", '"')
    wrong = run("show", "turns.parquet", "雪", cwd=folder, PYTHONIOENCODING=encoding)
    assert (wrong.returncode, wrong.stderr.count(b"\n")) == (2, 1)


def test_every_sign_that_stands_for_another_can_be_written_in_ascii() -> None:
    assert all(plain.isascii() for plain in PLAIN.values())
    assert [sign for sign in PLAIN if sign.isascii()] == []


@pytest.mark.slow
def test_files_are_read_and_written_as_utf_8_whatever_the_machines_encoding(folder: Path) -> None:
    told = run("sql", "from turns", "--file", "turns.parquet", "--out", "answer.csv", cwd=folder, **OTHER_MACHINE)
    assert told.returncode == 0, told.stderr
    assert "öffne Tür" in (folder / "answer.csv").read_text(encoding="utf-8")
    messages = [{"role": "user", "content": "Grüße 雪"}, {"role": "assistant", "content": "öffne"}]
    chat = {"group_id": "g", "rollout_id": "r", "reward": 1.0, "messages": messages}
    (folder / "chat.jsonl").write_text(json.dumps(chat, ensure_ascii=False), encoding="utf-8")
    read = run("import", "chat.jsonl", "--out", "imported.parquet", cwd=folder, **OTHER_MACHINE)
    assert read.returncode == 0, read.stderr
    assert pq.read_table(folder / "imported.parquet").column("response_text").to_pylist() == ["öffne"]
    (folder / "config.yaml").write_text("experiment: grün\nmethods: [flat_grpo]\n", encoding="utf-8")
    planned = run("plan", cwd=folder, **OTHER_MACHINE)
    assert b"\\xfc" in planned.stdout + planned.stderr


@pytest.mark.slow
def test_webshops_titles_are_the_same_on_a_machine_whose_encoding_is_another(tmp_path: Path) -> None:
    """The original's files are UTF-8: 53 of its 1,000 products have a title with other than ASCII signs."""
    product = {"name": "Café crème 1½ oz – “Élan”"}
    (tmp_path / "items.json").write_text(json.dumps([product], ensure_ascii=False), encoding="utf-8")
    code = "import sys; from pathlib import Path; from turncredit.envs.webshop.catalogue import _json; "
    code += "sys.stdout.buffer.write(_json(Path('items.json'))[0]['name'].encode())"
    environment = {**os.environ, **OTHER_MACHINE}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert done.stdout.decode() == product["name"]
