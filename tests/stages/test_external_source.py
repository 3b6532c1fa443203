"""Relative paths in params.yaml count from the main checkout, wherever a stage runs."""

from pathlib import Path

import pytest

from stages.external_source import located


def test_paths_count_from_the_main_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main, clone = tmp_path / "main", tmp_path / "clone"
    (main / "inputs" / "tofu").mkdir(parents=True)
    clone.mkdir()
    monkeypatch.chdir(clone)
    monkeypatch.setenv("EFFACE_ROOT", str(main))
    assert located("inputs/tofu") == str(main / "inputs" / "tofu")
    assert located(str(main)) == str(main)
    assert located("organisation/model") == "organisation/model"
    monkeypatch.delenv("EFFACE_ROOT")
    assert located("inputs/tofu") == "inputs/tofu"
    monkeypatch.chdir(main)
    assert located("inputs/tofu") == "inputs/tofu"
