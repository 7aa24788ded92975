"""`turncredit env searchqa`: what it prints and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from turncredit.envs.searchqa import make_tasks, open_task
from turncredit.envs.searchqa.commands import app
from turncredit.envs.searchqa.questions import read_corpus
from turncredit.envs.searchqa.settings import Settings
from turncredit.errors import UserError

runner = CliRunner()


def test_the_generated_documents_can_be_written_and_read_as_a_corpus(tmp_path: Path) -> None:
    path = tmp_path / "documents.jsonl"
    assert "60 documents" in runner.invoke(app, ["export", str(path), "--documents", "60"]).stdout
    env = open_task(make_tasks("train", 1, 0, Settings(documents=60))[0], Settings(documents=60))
    assert read_corpus(path) == env.retriever.documents


@pytest.mark.parametrize("name", ["", "documents.txt", "file/documents.jsonl"])
def test_documents_are_written_to_a_jsonl_file_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    result = runner.invoke(app, ["export", str(tmp_path / name), "--documents", "60"])
    assert isinstance(result.exception, UserError)
    assert str(tmp_path) in str(result.exception)


def test_documents_of_one_s_own_need_questions_of_one_s_own(tmp_path: Path) -> None:
    result = runner.invoke(app, ["play", "--corpus", str(tmp_path / "corpus.jsonl")])
    assert isinstance(result.exception, UserError)
    assert "--corpus needs --questions" in str(result.exception)
