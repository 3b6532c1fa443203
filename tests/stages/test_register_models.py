"""The registry follows dvc.lock: once per content, repaired when lost, and every byte comes back through the plugin."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.services

DVC_YAML = """
stages:
  train_target:
    cmd: python make.py models/target base
    deps: [make.py]
    outs: [models/target]
  score_cud:
    cmd: mkdir -p data/forget_sets && echo 1 2 3 > data/forget_sets/easy.parquet
    deps: [make.py]
    outs: [data/forget_sets/easy.parquet]
  edit:
    foreach: ${grid}
    do:
      cmd: python make.py ${item.weights} ${key}
      deps: [make.py, models/target, "data/forget_sets/easy.parquet"]
      params: ["edit.${item.edit}"]
      outs: ["${item.weights}"]
"""
PARAMS = """
profile: toy
edit: {grom: {method: grom, beta: 3}, npo: {method: npo}}
grid:
  grom-easy: {edit: grom, set: easy, base: models/target, weights: models/edit/grom-easy}
  npo-easy: {edit: npo, set: easy, base: models/target, weights: models/edit/npo-easy}
"""
MAKE = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
(folder / "nested").mkdir(parents=True)
(folder / "delta.safetensors").write_bytes(sys.argv[2].encode() * 1000)
(folder / "nested" / "config.json").write_text("{}")
"""
METRICS = {
    "target": {"model_utility": 0.5},
    "grom-easy": {"forget": {"probability (mean)": 0.25}, "undefined": float("nan"), "note": "text"},
}


def command(folder: Path, *words: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(words, cwd=folder, check=True, capture_output=True, env={**os.environ, "PATH": path})


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    files = {"dvc.yaml": DVC_YAML, "params.yaml": PARAMS, "make.py": MAKE}
    files["data/compare/metrics.json"] = json.dumps(METRICS)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    command(folder, "git", "init", "-q")
    command(folder, "dvc", "init", "-q")
    command(folder, "dvc", "repro", "-q")
    command(folder, "git", "add", "-A")
    command(folder, "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "toy")
    return folder


@pytest.fixture
def checkout(computed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(computed)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("EFFACE_DVC_CACHE", raising=False)
    return computed


def test_registers_once_and_repairs_a_lost_registry(
    checkout: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first registry is left aside: to receipts and DVC an empty one looks just like one that was lost."""
    from stages.register_models import main
    from stages.registry import registered_version, registry_client

    main()
    assert "3 new model version(s), 0 already there" in capsys.readouterr().out
    receipts = Path("data/register_models/receipts.json").read_text()
    assert list(json.loads(receipts)) == ["target", "grom-easy", "npo-easy"]

    main()
    assert "0 new model version(s), 3 already there" in capsys.readouterr().out

    version = registered_version("efface-toy-grom")
    target = registered_version("efface-toy-target")
    assert version.source == f"dvc://{version.tags['content_key']}" and version.source.endswith(".dir")
    assert version.tags["base_content_key"] == target.tags["content_key"]
    assert version.tags["parent"] == "models:/efface-toy-target/1"
    assert version.tags["forget_set"] == "easy" and version.tags["method"] == "grom"
    assert len(version.tags["forget_set_key"]) == 32
    assert version.tags["dvc.stage"] == "edit@grom-easy" and len(version.tags["git.commit"]) == 40
    client = registry_client()
    assert client.get_run(version.run_id).data.metrics == {"forget.probability _mean_": 0.25}
    lineage = json.loads(Path(client.download_artifacts(version.run_id, "lineage.json")).read_text())
    assert set(lineage["stages"]) == {"edit@grom-easy", "train_target", "score_cud"}
    assert lineage["stages"]["edit@grom-easy"]["params"] == {
        "params.yaml": {"edit.grom": {"method": "grom", "beta": 3}}
    }

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/empty.db")
    main()
    assert "3 new model version(s), 0 already there" in capsys.readouterr().out
    assert Path("data/register_models/receipts.json").read_text() == receipts
    status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True).stdout
    assert {line.split()[-1] for line in status.splitlines()} <= {"mlflow.db", "mlruns/"}


def test_new_metrics_reach_an_existing_version(checkout: Path, capsys: pytest.CaptureFixture) -> None:
    from stages.register_models import METRICS as path
    from stages.register_models import main
    from stages.registry import registered_version, registry_client

    main()
    path.write_text(json.dumps({"npo-easy": {"model_utility": 0.75}}))
    main()
    run = registry_client().get_run(registered_version("efface-toy-npo").run_id)
    path.write_text(json.dumps(METRICS))
    assert run.data.metrics == {"model_utility": 0.75}


def test_what_is_not_in_the_cache_is_named_and_left_out(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    from stages.register_models import main

    monkeypatch.setenv("EFFACE_DVC_CACHE", str(tmp_path))
    main()
    printed = capsys.readouterr()
    assert "grom-easy: models/edit/grom-easy is not computed yet; run `dvc repro`" in printed.err
    assert "0 new model version(s), 0 already there" in printed.out


def test_unknown_models_and_versions_are_refused_by_name(checkout: Path) -> None:
    from stages.register_models import main
    from stages.registry import registered_version

    main()
    with pytest.raises(ValueError, match="no registered model 'efface-toy-rmu'; there are: efface-toy-grom"):
        registered_version("efface-toy-rmu")
    with pytest.raises(ValueError, match=r"efface-toy-grom has no version 7; there are: \[1\]"):
        registered_version("efface-toy-grom", 7)


def test_plugin_returns_the_very_bytes_and_finds_damage(checkout: Path, tmp_path: Path) -> None:
    import mlflow
    from mlflow.exceptions import MlflowException
    from mlflow.store.artifact.artifact_repository_registry import _artifact_repository_registry

    from efface.artifact_repository import DvcArtifactRepository, object_path, tracked_files
    from stages.register_models import main
    from stages.registry import registered_version, tracking_uri

    main()
    _artifact_repository_registry.register("dvc", DvcArtifactRepository)
    mlflow.set_tracking_uri(tracking_uri())
    folder = Path(mlflow.artifacts.download_artifacts("models:/efface-toy-npo/1", dst_path=str(tmp_path / "all")))
    assert {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} >= {
        "delta.safetensors",
        "nested/config.json",
    }
    assert (folder / "delta.safetensors").read_bytes() == Path("models/edit/npo-easy/delta.safetensors").read_bytes()

    source = registered_version("efface-toy-npo").source
    repository = DvcArtifactRepository(source)
    assert [(info.path, info.is_dir, info.file_size) for info in repository.list_artifacts()] == [
        ("delta.safetensors", False, 8000),
        ("nested", True, None),
    ]
    assert [info.path for info in repository.list_artifacts("nested")] == ["nested/config.json"]
    one = mlflow.artifacts.download_artifacts(f"{source}/nested/config.json", dst_path=str(tmp_path / "one"))
    assert Path(one).read_text() == "{}"

    md5 = tracked_files(source.removeprefix("dvc://"))["delta.safetensors"]
    stored = object_path(md5)
    good = stored.read_bytes()
    stored.chmod(0o644)
    stored.write_bytes(b"x" + good[1:])
    with pytest.raises(MlflowException, match="damaged"):
        repository.download_artifacts("delta.safetensors", str(tmp_path))
    stored.write_bytes(good)
    single = mlflow.artifacts.download_artifacts(f"dvc://{md5}/delta.safetensors", dst_path=str(tmp_path))
    assert Path(single).read_bytes() == good


@pytest.mark.parametrize("uri", ["dvc://nonsense", "dvc://../../etc", f"dvc://{'0' * 32}.dir"])
def test_plugin_refuses_what_is_not_content(checkout: Path, uri: str) -> None:
    from mlflow.exceptions import MlflowException

    from efface.artifact_repository import DvcArtifactRepository

    with pytest.raises(MlflowException, match=r"expected the md5|not in the DVC cache"):
        DvcArtifactRepository(uri)


def test_a_registered_edit_loads_as_base_plus_delta_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from efface.editing.delta import save_delta
    from efface.models import WEIGHTS, file_md5, save_model, scratch_llama
    from stages import registry

    shape = {"vocab_size": 40, "layers": 1, "hidden": 16, "heads": 2, "kv_heads": 1, "intermediate": 24}
    model = scratch_llama(**shape, tie_embeddings=True, seed=0)
    name = "model.layers.0.mlp.down_proj.weight"
    change = torch.full_like(model.get_parameter(name), 0.1)
    save_model(model, tmp_path / "base")
    save_delta(tmp_path / "edit" / "delta.safetensors", {name: change}, base_md5=file_md5(tmp_path / "base" / WEIGHTS))
    base, edit = (store(tmp_path / folder, tmp_path / "cache") for folder in ("base", "edit"))
    monkeypatch.setenv("EFFACE_DVC_CACHE", str(tmp_path / "cache"))
    version = SimpleNamespace(source=f"dvc://{edit}", tags={"content_key": edit, "base_content_key": base})
    monkeypatch.setattr(registry, "registered_version", lambda *_, **__: version)

    weights = registry.load_registered("efface-toy-grom", 1).state_dict()
    for parameter, value in model.state_dict().items():
        assert torch.equal(weights[parameter], value + change if parameter == name else value), parameter


def store(folder: Path, cache: Path) -> str:
    """Puts a folder into a cache as DVC would, and returns its content key."""
    entries = []
    for file in sorted(folder.rglob("*")):
        md5 = hashlib.md5(file.read_bytes()).hexdigest()
        entries.append({"md5": md5, "relpath": file.relative_to(folder).as_posix()})
        target = cache / "files" / "md5" / md5[:2] / md5[2:]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    listing = json.dumps(entries).encode()
    key = hashlib.md5(listing).hexdigest() + ".dir"
    target = cache / "files" / "md5" / key[:2] / key[2:]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(listing)
    return key
