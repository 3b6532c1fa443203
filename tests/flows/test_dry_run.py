"""A dry run keeps what a profile decides, but for model, corpus and numbers of steps."""

from pathlib import Path

import pytest
import torch
import yaml

from efface.models import load_model, load_tokenizer
from efface.tokenization import encode
from flows.dry_run import CLOSED_FORM, MODEL, dried, dry_run, write_model
from flows.profile_run import ProfileError
from stages.params import Params

ROOT = Path(__file__).resolve().parents[2]
PROFILES = sorted(path.parent for path in ROOT.glob("profiles/*/dry_run.yaml"))


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.name)
def test_parameters_stay_valid_and_most_of_them_the_same(profile):
    params = yaml.safe_load((profile / "params.yaml").read_text())
    found = dried(params)
    checked = Params.model_validate(found)
    assert checked.train_target.model.source == checked.prepare_data.tokenizer.source == MODEL
    assert (profile / "README.md").read_text().count(f"flows.dry_run {profile.name}") == 1
    for section in ("grid", "models", "sets", "extract_circuits", "quantize_attack", "tokenization"):
        assert found[section] == params[section]
    for name, edit in params["edit"].items():
        epochs = {} if edit["method"] in CLOSED_FORM else {"epochs": 1}
        assert found["edit"][name] == {**edit, **epochs}


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.name)
def test_the_model_has_the_layers_of_the_real_one_and_chats(profile, tmp_path):
    shape = yaml.safe_load((profile / "dry_run.yaml").read_text())
    write_model(tmp_path, shape)
    model, tokenizer = load_model(tmp_path), load_tokenizer(tmp_path)
    assert model.config.num_hidden_layers == shape["layers"]
    assert model.config.tie_word_embeddings == shape["tie_embeddings"]
    grom = yaml.safe_load((profile / "params.yaml").read_text())["edit"]["grom"]
    assert max(grom["layers"]) == shape["layers"] - 1
    encoding = encode(tokenizer, "Who?", "She.", template="chat", max_length=64)
    assert model(input_ids=torch.tensor([encoding.input_ids])).logits.isfinite().all()


def test_a_profile_without_a_tiny_model_is_named():
    with pytest.raises(ProfileError, match=r"smollm2/dry_run\.yaml: no such file; give there the layers"):
        dry_run(ROOT, "smollm2")
