"""An auditor's questions to a registry: where a model comes from, where an example was forgotten, what may be used."""

import json
import subprocess
from pathlib import Path

import pytest
from toy_checkout import command, commit_all, toy_checkout

pytestmark = pytest.mark.services
NAME = "efface-toy-grom"


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy pipeline, run, committed and registered."""
    folder = toy_checkout(tmp_path_factory.mktemp("lineage") / "checkout")
    command(folder, "dvc", "repro", "-q")
    commit_all(folder, "run")
    assert "2 new model version(s)" in command(folder, "python", "-m", "stages", "register_models")
    return folder


@pytest.fixture
def checkout(registered: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(registered)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("EFFACE_DVC_CACHE", raising=False)
    return registered


def test_lineage_goes_from_attack_to_base_without_a_gap(checkout: Path, capsys: pytest.CaptureFixture) -> None:
    from flows.lineage import main

    assert main([f"{NAME}/1", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    # The toy has no circuits and activations of its own: `score_cud` and `edit` stand for their steps.
    assert {step: list(stages) for step, stages in tree["steps"].items()} == {
        "base model": ["train_target"],
        "data and forget set": ["prepare_data"],
        "circuits and CUD": ["score_cud"],
        "edit": ["edit@grom-default"],
        "evaluation": ["evaluate@grom-default"],
        "attack": ["quantize_attack@grom-default"],
        "other": [],
    }
    assert tree["gaps"] == tree["parent"]["gaps"] == []
    assert tree["parent"]["address"] == "efface-toy-target/1"
    assert tree["tags"]["git.commit"] == command(checkout, "git", "rev-parse", "HEAD").strip()
    edit = tree["steps"]["edit"]["edit@grom-default"]
    assert edit["deps"]["models/target"] == tree["parent"]["tags"]["content_key"]

    assert main([NAME]) == 0
    text = capsys.readouterr().out
    assert "no gap" in text and "edited from efface-toy-target/1" in text and "rtn_4.recovery = 0.25" in text
    assert main([NAME, "--html"]) == 0
    assert edit["outs"]["models/edit/grom-default"] in capsys.readouterr().out


def test_example_finds_every_version_that_forgot_it(checkout: Path, capsys: pytest.CaptureFixture) -> None:
    from flows.lineage import main

    assert main(["--example", "2", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["model"], found["cud"], found["content_hash"]) == (f"{NAME}/1", 0.75, f"{2:064x}")
    assert found["influence"] == {"model.layers.0.mlp.down_proj": 0.5}
    assert found["probability"] == {"none": 0.1, "rtn_4": 0.3} and found["probability_before"] == 0.9
    assert found["recovery"]["rtn_4"] == pytest.approx((0.3 - 0.1) / (0.9 - 0.1))
    assert found["missing"] == []

    assert main(["--example", f"{2:064x}"]) == 0
    assert "recovery             rtn_4 0.250" in capsys.readouterr().out
    assert main(["--example", "3"]) == 0
    assert "No registered version" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("models/edit/grom-default/delta.safetensors", "models/edit/grom-default/delta.safetensors"),
        ("data/forget_sets/default.parquet", "data/forget_sets/default.parquet"),
        ("models/target/model.safetensors", "models/target/model.safetensors"),
    ],
)
def test_verify_names_the_file_with_one_flipped_byte(
    checkout: Path, capsys: pytest.CaptureFixture, path: str, named: str
) -> None:
    from flows.registered import find_registered
    from flows.verification import _file_md5

    stored = find_registered(NAME).content(path)
    good = stored.read_bytes()
    assert verified(capsys) == (0, [])
    stored.chmod(0o644)
    stored.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    _file_md5.cache_clear()
    code, problems = verified(capsys)
    stored.write_bytes(good)
    _file_md5.cache_clear()
    assert code == 1 and len(problems) == 1
    assert problems[0].startswith(f"{named}: damaged: files/md5/{stored.parent.name}/{stored.name}")


def verified(capsys: pytest.CaptureFixture) -> tuple[int, list[str]]:
    from flows.lineage import main

    code = main([NAME, "--verify"])
    *problems, summary = capsys.readouterr().out.splitlines()
    assert f"{len(problems)} problem(s)" in summary
    return code, problems


def test_verify_sees_code_that_no_commit_holds(checkout: Path) -> None:
    from flows.verification import _code

    commit = command(checkout, "git", "rev-parse", "HEAD").strip()
    (finding,) = _code("make.py", "0" * 32, commit)
    assert "it ran uncommitted code" in finding.problem
    (finding,) = _code("make.py", "0" * 32, "f" * 40)
    assert "is not in this repository" in finding.problem


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("efface-toy-rmu", "no registered model 'efface-toy-rmu'; there are: efface-toy-grom, efface-toy-target"),
        (f"{NAME}/9", r"has no version 9; there are: \[1\]"),
        (f"{NAME}@best", "has no alias 'best'"),
        ("../mlruns", "expected NAME"),
        ("x' or name != '", "expected NAME"),
    ],
)
def test_addresses_that_name_nothing_are_refused(checkout: Path, address: str, message: str) -> None:
    from flows.registered import NotRegistered, find_registered

    with pytest.raises(NotRegistered, match=message):
        find_registered(address)


def test_gate_refuses_by_threshold_and_moves_the_alias(
    checkout: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The toy's utility is 0.875 and a quarter of what was erased comes back."""
    from flows.promotion import Gate, main, promote
    from flows.registered import NotRegistered, find_registered

    assert main() == 0
    verdict = (
        "refused: model utility 0.875 is 0.025 below 0.9 (model_utility_at_least); "
        "recovery after rtn_4 0.25 is 0.15 above 0.1 (recovery_at_most)"
    )
    assert capsys.readouterr().out.strip() == f"{NAME}/1 @promoted-default: {verdict}"
    assert find_registered(NAME).tags["promotion"] == verdict
    with pytest.raises(NotRegistered, match="no alias"):
        find_registered(f"{NAME}@promoted-default")

    gate = {"forget_probability_at_most": 0.2, "forget_extraction_strength_at_most": 0.1, "recovery_at_most": 0.3}
    for _ in range(2):
        promote(Gate(alias="promoted", model_utility_at_least=0.8, **gate))
        found = find_registered(f"{NAME}@promoted-default")
        assert (found.version, found.tags["promotion"]) == (1, "promoted")
    main()
    assert find_registered(NAME).aliases == ()


def test_a_lost_registry_is_repaired(checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from flows.lineage import lineage_tree
    from flows.registered import find_registered
    from stages.register_models import main
    from stages.registry import CARD, recorded_file, registered_version

    before, card = lineage_tree(find_registered(NAME)), recorded_file(registered_version(NAME), CARD)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    main()
    after = lineage_tree(find_registered(NAME))
    before["tags"].pop("promotion", None)
    assert after == before
    assert recorded_file(registered_version(NAME), CARD) == card
    for part in (
        "1 training examples",
        "`grom` on `models/target`",
        "| 1 | 0 | 0.750 |",
        "| rtn_4 | 0.3 | 0.25 | 0.24",
    ):
        assert part in card


def test_exported_folder_is_the_edited_model(checkout: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from efface.models import load_model
    from flows.export import FolderTaken, export

    folder = export(NAME, tmp_path / "model")
    weights, base = (
        model.state_dict() for model in (AutoModelForCausalLM.from_pretrained(folder), load_model("models/target"))
    )
    for name, value in base.items():
        changed = name == "model.layers.0.mlp.down_proj.weight"
        assert torch.equal(weights[name], value + 0.1 if changed else value), name
    assert AutoTokenizer.from_pretrained(folder)("Who")["input_ids"]
    assert (folder / "README.md").read_text().startswith("---\nlibrary_name: transformers")
    with pytest.raises(FolderTaken, match="not an empty folder"):
        export(NAME, folder)


def test_the_card_of_what_was_measured_anew_replaces_the_old_and_keeps_it(checkout: Path) -> None:
    """Last, because it changes the checkout: another comment in a stage's code gives another recipe, the same bytes."""
    from stages.registry import LINEAGE, recorded_file, registered_version, registry_client

    before = json.loads(recorded_file(registered_version(NAME), LINEAGE))
    (checkout / "make.py").write_text((checkout / "make.py").read_text() + "# the same\n")
    command(checkout, "dvc", "repro", "-q")
    commit_all(checkout, "another recipe")
    assert "0 new model version(s)" in command(checkout, "python", "-m", "stages", "register_models")
    version = registered_version(NAME)
    after = json.loads(recorded_file(version, LINEAGE))
    assert after["content_key"] == before["content_key"] and after["stages"] != before["stages"]
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    assert version.tags["git.commit"] == head
    (earlier,) = registry_client().list_artifacts(str(version.run_id), "earlier")
    kept = json.loads(recorded_file_in(version, earlier.path))
    assert kept["stages"] == before["stages"] and kept["tags"]["git.commit"] != head


def recorded_file_in(version, path: str) -> str:
    from stages.registry import registry_client

    return Path(registry_client().download_artifacts(str(version.run_id), path)).read_text()
