"""Loading, saving and the names of a model's parts."""

import pytest
import torch

from efface.models import (
    WEIGHTS,
    anatomy,
    file_md5,
    layer_of,
    linear_module_names,
    load_model,
    module_name,
    save_model,
    scratch_llama,
    untie_unembedding,
)

SHAPE = dict(vocab_size=50, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48)


@pytest.mark.parametrize("tied", [True, False])
def test_saved_model_reloads_with_the_same_logits_and_bytes(tmp_path, tied):
    model = scratch_llama(**SHAPE, tie_embeddings=tied, seed=3)
    save_model(model, tmp_path / "a")
    reloaded = load_model(tmp_path / "a")
    ids = torch.arange(12)[None]
    assert torch.equal(model(ids).logits, reloaded(ids).logits)
    save_model(reloaded, tmp_path / "b")
    assert file_md5(tmp_path / "a" / WEIGHTS) == file_md5(tmp_path / "b" / WEIGHTS)


def test_seed_decides_scratch_weights_and_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    first, second = (scratch_llama(**SHAPE, tie_embeddings=True, seed=1).lm_head.weight for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.random.get_rng_state())


def test_linear_modules_are_named_layer_by_layer():
    model = scratch_llama(**SHAPE, tie_embeddings=True, seed=0)
    names = linear_module_names(model, [1])
    assert [name.rsplit(".", 1)[1] for name in names] == [
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    ]  # fmt: skip
    assert all(layer_of(name) == 1 for name in names)
    assert module_name(model, anatomy(model).layers[1].down_projection) == "model.layers.1.mlp.down_proj"
    with pytest.raises(ValueError, match="layer 2: this model has layers 0 to 1"):
        linear_module_names(model, [2])


def test_untied_unembedding_can_change_alone():
    model = scratch_llama(**SHAPE, tie_embeddings=True, seed=0)
    embedding = model.get_input_embeddings().weight.detach().clone()
    untie_unembedding(model)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    assert torch.equal(model.get_input_embeddings().weight, embedding)


def test_missing_model_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such model folder"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="no such GGUF file"):
        load_model(tmp_path / "absent.gguf")


def test_unknown_architecture_says_what_is_missing():
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    shape = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=20)
    with pytest.raises(ValueError, match=r"GPTNeoXForCausalLM: no `model\.layers`"):
        anatomy(GPTNeoXForCausalLM(GPTNeoXConfig(**shape)))


def test_a_model_spread_over_devices_computes_the_same(tmp_path):
    """Half of its layers are on disk until they are needed: logits and answers are those of the whole."""
    whole = scratch_llama(**SHAPE, tie_embeddings=True, seed=0)
    save_model(whole, tmp_path)
    places: dict[str, str | int] = dict.fromkeys(
        ["model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"], "cpu"
    )
    places |= {f"model.layers.{layer}": "disk" if layer % 2 else "cpu" for layer in range(SHAPE["layers"])}
    spread = load_model(tmp_path, device=places)
    assert any(parameter.is_meta for parameter in spread.parameters())
    ids = torch.randint(3, SHAPE["vocab_size"], (3, 9), generator=torch.Generator().manual_seed(0))
    assert torch.equal(spread(ids).logits, whole(ids).logits)
    settings = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(spread.generate(ids[:, :4], **settings), whole.generate(ids[:, :4], **settings))


def test_all_devices_there_are_is_one_where_there_is_one(tmp_path):
    whole = scratch_llama(**SHAPE, tie_embeddings=False, seed=0)
    save_model(whole, tmp_path)
    loaded = load_model(tmp_path, device="auto")
    assert all(torch.equal(value.cpu(), whole.state_dict()[name]) for name, value in loaded.state_dict().items())


def test_pickled_weights_are_refused(tmp_path):
    """They could run code; the same folder loads once the weights are safetensors."""
    whole = scratch_llama(**SHAPE, tie_embeddings=False, seed=0)
    whole.config.save_pretrained(tmp_path)
    torch.save(whole.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        load_model(tmp_path)
    save_model(whole, tmp_path)
    load_model(tmp_path)
