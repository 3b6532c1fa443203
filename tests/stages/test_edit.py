"""The edit stage on a tiny target: every editor's delta, its record and its influence."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch

from efface.corpora.vocabulary import train_byte_bpe
from efface.editing.delta import load_delta, load_edited
from efface.editing.grom import Grom
from efface.editing.strength import StrengthSearch
from efface.editing.subspace import QrErase, UnlearnSvd
from efface.models import WEIGHTS, file_md5, save_model, scratch_llama
from efface.task_matrices.factors import task_matrix
from efface.tokenization import Encoding
from efface.unlearning.methods import AltPo, Flat, GradAscent, GradDiff, IdkDpo, Pdu, Unlearning
from stages import edit
from stages.build_task_matrices import write as write_task_matrices
from stages.edit_task import EditTask
from stages.editors import edit_outcome
from stages.encoded_rows import encoded_rows
from stages.extract_activations import extract, trained_rows
from stages.params import GridItem, Tokenization
from stages.tables.difficulty import DIFFICULTY, read_cud
from stages.tables.direct_effects import DIRECT_EFFECTS
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import FORGET_SETS
from stages.tables.influence import INFLUENCE

SHAPE = dict(layers=3, hidden=16, heads=2, kv_heads=1, intermediate=24, tie_embeddings=True, seed=0)
FORGET_IDS = [2, 5, 9]
ROWS = pl.DataFrame(
    {
        "id": range(16),
        "content_hash": [f"{id:x}" for id in range(16)],
        "split": ["authors"] * 12 + ["real_authors"] * 2 + ["world_facts"] * 2,
        "author": [id // 4 if id < 12 else -1 for id in range(16)],
        "position": [id % 4 for id in range(16)],
        "question": [f"What is number {id * 7}?" for id in range(16)],
        "answer": [f"It is {chr(97 + id) * 3} of {chr(97 + id % 5) * 4}." for id in range(16)],
        "paraphrased_answer": [None] * 16,
        "perturbed_answers": [[]] * 16,
        "trained": [True] * 16,
        "pool": [id < 10 for id in range(16)],
        "anchor_candidate": [False] * 16,
        "utility": [id >= 11 for id in range(16)],
    },
    schema_overrides={"paraphrased_answer": pl.String, "perturbed_answers": pl.List(pl.String)},
)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """What the stages before `edit` leave: examples, tokenizer, a forget set, a target, activations, task matrices."""
    root = tmp_path_factory.mktemp("checkout")
    texts = [text for pair in ROWS.select("question", "answer").rows() for text in pair]
    tokenizer = train_byte_bpe([f"Question: {text}\nAnswer:" for text in texts], vocab_size=320)
    tokenizer.save_pretrained(root / "data/prepare_data/tokenizer")
    EXAMPLES.write(root / "data/prepare_data/examples.parquet", ROWS)
    FORGET_SETS.write(root / "data/forget_sets/default.parquet", pl.DataFrame({"id": FORGET_IDS, "role": "forget"}))
    model = scratch_llama(vocab_size=len(tokenizer), **SHAPE)
    save_model(model, root / "models/target")
    rows = trained_rows(ROWS)
    encodings = encoded_rows(rows, tokenizer, Tokenization(template="plain", max_length=64))
    extract(model, rows, encodings, root / "data/extract_activations", batch_size=4, pad_id=tokenizer.pad_token_id)
    write_task_matrices(task_matrices(model), root / "data/build_task_matrices/default")
    DIFFICULTY.write(root / "data/score_cud/difficulty.parquet", difficulty_rows())
    return root


def difficulty_rows() -> pl.DataFrame:
    """CUD rises with the id under the chosen similarity, and falls under the other one."""
    return pl.DataFrame(
        [
            {
                "id": id, "source": "all", "similarity": similarity, "weighting": "binary", "s_easy": 0.5,
                "s_hard": 0.5, "cud": id / 10 if similarity == "cosine" else 1 - id / 10, "undefined": False,
                "chosen": similarity == "cosine", "anchor": None,
            }
            for similarity in ("cosine", "jaccard")
            for id in range(10)
        ],
        schema_overrides={"anchor": pl.String},
    )  # fmt: skip


def task_matrices(model) -> dict:
    """Changes of every down-projection, the one of layer 2 by far the largest."""
    generator = torch.Generator().manual_seed(0)
    return {
        side: {
            f"model.layers.{layer}.mlp.down_proj": task_matrix(
                size * torch.randn(16, 24, generator=generator), rank=4, energy=1.0
            )
            for layer, size in enumerate((0.1, 0.1, 1.0))
        }
        for side in ("forget", "retain")
    }


@pytest.fixture
def task(checkout) -> EditTask:
    model = scratch_llama(vocab_size=320, **SHAPE)
    rows = [Encoding(tuple((3 * id + k * (1 + id % 3)) % 300 for k in range(7 + id % 4)), 3) for id in range(16)]
    encodings = dict(enumerate(rows))
    return EditTask(
        model,
        forget={id: encodings[id] for id in FORGET_IDS},
        retain={id: encodings[id] for id in range(11) if id not in FORGET_IDS},
        utility={id: encodings[id] for id in range(11, 16)},
        reads=checkout / "data/extract_activations",
        seed=0,
        pad_id=0,
    )


def run(checkout: Path, monkeypatch, edits: dict, *, reads: str = "data/extract_activations") -> list[Path]:
    """Runs the stage's `main` for every edit on `default`; returns its two output folders per edit."""
    monkeypatch.chdir(checkout)
    grid = {
        f"{name}-default": GridItem(
            edit=name, set="default", base="models/target", weights=f"models/edit/{name}-default", reads=reads
        )
        for name in edits
    }
    tokenization = Tokenization(template="plain", max_length=96)
    params = SimpleNamespace(grid=grid, edit=edits, seed=0, tokenization=tokenization)
    monkeypatch.setattr(edit, "load_params", lambda: params)
    for item in grid:
        edit.main(item)
    return [checkout / part / item for item in grid for part in ("models/edit", "data/edit")]


@pytest.mark.parametrize(
    ("name", "editor", "reads"),
    [
        ("grom", Grom(beta=3.0, head_beta=2.0), "data/extract_activations"),
        ("grom_one_shot", Grom(beta=3.0, head_beta=2.0, sequential=False), "data/extract_activations"),
        ("grom_corrupting", Grom(target="corruption", beta=3.0, layers=(1,)), "models/target"),
        ("grom_guided", Grom(beta=3.0, layers=(1,), difficulty_gain=0.5), "data/score_cud"),
        ("qr_erase", QrErase(localised=True), "data/build_task_matrices/default"),
        ("unlearn_svd", UnlearnSvd(strength=0.5), "data/build_task_matrices/default"),
        ("grad_diff", GradDiff(epochs=1, learning_rate=1e-3), "models/target"),
        ("grad_diff_hard_first", GradDiff(epochs=1, learning_rate=1e-3, order="hard_first"), "data/score_cud"),
        ("grad_ascent", GradAscent(epochs=1, localised=True), "data/build_task_matrices/default"),
        ("idk_dpo", IdkDpo(epochs=1), "models/target"),
        ("alt_po", AltPo(epochs=1, alternatives=2, max_new_tokens=8), "models/target"),
        ("flat", Flat(epochs=1, refusals=("No.", "I can't say.")), "models/target"),
        ("pdu", Pdu(epochs=1), "models/target"),
    ],
)
def test_stage_writes_a_delta_that_reloads_and_the_same_bytes_again(checkout, monkeypatch, name, editor, reads):
    before = file_md5(checkout / "models/target" / WEIGHTS)
    weights, folder = run(checkout, monkeypatch, {name: editor}, reads=reads)
    first = {path: path.read_bytes() for path in (*weights.iterdir(), *folder.iterdir())}
    run(checkout, monkeypatch, {name: editor}, reads=reads)
    assert {path: path.read_bytes() for path in first} == first
    assert file_md5(checkout / "models/target" / WEIGHTS) == before

    record = json.loads((folder / "record.json").read_text())
    assert record["method"] == editor.method and record["base_md5"] == before and record["set"] == "default"
    assert record["forget_rows"] == 3 and record["retain_rows"] == 8
    assert str(checkout) not in (folder / "record.json").read_text()
    delta, base_md5 = load_delta(weights / "delta.safetensors")
    assert base_md5 == before and set(delta) == set(record["weights"])
    edited = load_edited(checkout / "models/target", weights / "delta.safetensors")
    assert torch.isfinite(edited(torch.arange(5)[None]).logits).all()
    influence = INFLUENCE.read(folder / "influence.parquet")
    assert influence.is_empty() == (not isinstance(editor, Grom))
    assert (folder / "loss.csv").exists() == isinstance(editor, Unlearning)
    made = {"idk_dpo": ("refusals", 100), "alt_po": ("sampled from the base", 2), "flat": ("given refusals", 2)}
    if name in made:
        assert (record["alternatives"]["source"], record["alternatives"]["most"]) == made[name]
    else:
        assert "alternatives" not in record
    if getattr(editor, "localised", False):
        assert record["layers"] == [2] and all(".layers.2." in weight for weight in delta)


def test_influence_names_examples_and_modules(checkout, monkeypatch):
    _, folder = run(checkout, monkeypatch, {"grom": Grom(beta=3.0, head_beta=2.0, layers=(0, 2))})
    influence = INFLUENCE.read(folder / "influence.parquet")
    modules = ["model.layers.0.mlp.down_proj", "model.layers.2.mlp.down_proj", "lm_head"]
    assert sorted(influence.select("id", "module").rows()) == sorted((i, m) for i in FORGET_IDS for m in modules)
    assert set(influence.filter(module="lm_head")["layer"]) == {None}
    assert (influence["influence_norm"] > 0).all() and influence["relative"].is_finite().all()


@pytest.mark.parametrize("sequential", [True, False])
def test_withdrawn_rows_are_taken_out_of_the_edit_exactly(checkout, monkeypatch, sequential):
    """What is missing from the delta is, in every module, the influence that the example has in the audit."""
    edits = {"grom": Grom(beta=3.0, head_beta=2.0, layers=(0, 2), sequential=sequential)}
    whole, audit = run(checkout, monkeypatch, edits)
    delta, _ = load_delta(whole / "delta.safetensors")
    influence = INFLUENCE.read(audit / "influence.parquet")
    roles = ["forget", "forget", "withdrawn"]
    forget_file = checkout / "data/forget_sets/default.parquet"
    before = forget_file.read_bytes()
    try:
        FORGET_SETS.write(forget_file, pl.DataFrame({"id": FORGET_IDS, "role": roles}))
        run(checkout, monkeypatch, edits)
    finally:
        forget_file.write_bytes(before)
    less, _ = load_delta(whole / "delta.safetensors")
    record = json.loads((audit / "record.json").read_text())
    assert record["forget_rows"] == 2 and record["retain_rows"] == 8 and record["withdrawn"]["rows"] == 1
    assert INFLUENCE.read(audit / "influence.parquet").equals(influence)
    for name, change in delta.items():
        row = influence.filter(id=FORGET_IDS[2], module=name.removesuffix(".weight")).row(0, named=True)
        assert float((change - less[name]).norm()) == pytest.approx(row["influence_norm"], rel=1e-4)
        assert record["withdrawn"]["relative_norm"][row["module"]] == pytest.approx(row["relative"], rel=1e-4)


def test_band_is_the_one_with_the_highest_score(task):
    outcome = edit_outcome(Grom(beta=3.0, width=2), task)
    effects = DIRECT_EFFECTS.read(task.reads / "direct_effects.parquet")
    scores = outcome.details["band_scores"]
    assert len(scores) == effects["layer"].n_unique() == 3
    best = max(range(2), key=lambda first: scores[first] + scores[first + 1])
    assert outcome.layers == (best, best + 1)
    assert set(outcome.delta) == {f"model.layers.{layer}.mlp.down_proj.weight" for layer in outcome.layers}


def test_no_leak_is_the_default_and_published_anchors_see_the_utility_rows(task):
    edit = Grom(beta=3.0, layers=(1,))
    without = edit_outcome(edit, replace(task, utility={}))
    assert torch.equal(
        edit_outcome(edit, task).delta["model.layers.1.mlp.down_proj.weight"],
        without.delta["model.layers.1.mlp.down_proj.weight"],
    )
    published = edit_outcome(Grom(beta=3.0, layers=(1,), retain_anchors="published"), task)
    assert published.details["retain_rows_used"] == 13 and without.details["retain_rows_used"] == 8


def test_one_shot_and_sequential_agree_on_a_single_layer(checkout, monkeypatch):
    edits = {f"grom_{kind}": Grom(beta=3.0, layers=(1,), sequential=kind == "walked") for kind in ("walked", "stored")}
    folders = run(checkout, monkeypatch, edits)
    walked, stored = (load_delta(folder / "delta.safetensors")[0] for folder in folders[::2])
    for name, change in walked.items():
        torch.testing.assert_close(stored[name], change, atol=1e-4 * float(change.norm()), rtol=0)


def test_column_caps_leave_examples_out(task):
    outcome = edit_outcome(Grom(beta=3.0, layers=(1,), forget_columns=6, retain_columns=20), task)
    assert outcome.details["forget_columns"] == 6 and outcome.details["retain_columns"] == 20
    assert 0 < len(outcome.influence) < 3


def test_strength_is_searched_until_the_target_is_reached(task):
    weak = Grom(beta=0.0, head_beta=5.0, sequential=False)
    plain = edit_outcome(weak, task)
    before = edit_outcome(replace(weak, search=StrengthSearch(forget_target=0.0, utility_floor=0.0)), task)
    curve = before.details["search"]["curve"]
    assert before.details["search"]["factor"] == 4.0 and curve[0]["forget"] > curve[-1]["forget"]
    target = (curve[0]["forget"] + curve[-1]["forget"]) / 2
    found = edit_outcome(replace(weak, search=StrengthSearch(forget_target=target, utility_floor=0.0)), task)
    factor = found.details["search"]["factor"]
    assert 0 < factor < 4
    for name, change in found.delta.items():
        torch.testing.assert_close(change, factor * plain.delta[name])
    tried = {point["factor"]: point["forget"] for point in found.details["search"]["curve"]}
    assert tried[factor] <= target < max(forget for tried_factor, forget in tried.items() if tried_factor < factor)
    assert found.influence["influence_norm"].to_list() == pytest.approx(
        (factor * plain.influence["influence_norm"]).to_list()
    )


def test_guided_edit_pushes_hard_examples_more(task, checkout):
    guided = edit_outcome(
        Grom(beta=3.0, layers=(1,), difficulty_gain=1.0), replace(task, reads=checkout / "data/score_cud")
    )
    plain = edit_outcome(Grom(beta=3.0, layers=(1,)), task)
    ratio = guided.influence.sort("id")["influence_norm"] / plain.influence.sort("id")["influence_norm"]
    assert ratio[0] < 1 < ratio[2]
    with pytest.raises(FileNotFoundError, match="no difficulty scores; set this grid item's `reads` to data/score_cud"):
        edit_outcome(Grom(beta=3.0, layers=(1,), difficulty_gain=1.0), task)
    with pytest.raises(ValueError, match=r"no CUD of examples \[12\]"):
        read_cud(checkout / "data/score_cud", [12])


def test_unusable_requests_are_named(checkout, monkeypatch, task):
    with pytest.raises(ValueError, match=r"'grom-nowhere': no such item; params\.grid has grom-default"):
        run(checkout, monkeypatch, {"grom": Grom()})
        edit.main("grom-nowhere")
    with pytest.raises(ValueError, match="0 forget and 8 retain rows"):
        edit_outcome(Grom(), replace(task, forget={}))
    with pytest.raises(ValueError, match="3 forget and 0 retain rows"):
        edit_outcome(Grom(), replace(task, retain={}))
    with pytest.raises(ValueError, match="layer 7: this model has layers 0 to 2"):
        edit_outcome(Grom(layers=(7,), sequential=False), task)
    with pytest.raises(FileNotFoundError, match="no task matrices; set this grid item's `reads`"):
        edit_outcome(QrErase(), task)
    with pytest.raises(FileNotFoundError, match="no energies; set this grid item's `reads`"):
        edit_outcome(GradDiff(localised=True), task)
    with pytest.raises(ValueError, match="idk_dpo: 0 of 3 forget examples have other answers"):
        edit_outcome(IdkDpo(), task)
