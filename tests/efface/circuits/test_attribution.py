"""Edge scores against real patching, across families, batches and broken inputs."""

from dataclasses import replace

import pytest
import torch
from literal_llama import literal_neg_nll, literal_run
from lively_models import FAMILIES, lively_model, random_batch

from efface.circuits.attribution import baseline_sources, edge_scores, mean_sources
from efface.circuits.contraction import source_differences
from efface.circuits.faithfulness import patched_metric
from efface.circuits.graph import Graph
from efface.circuits.recorded_run import recorded_run
from efface.circuits.residual_stream import residual_stream, writers
from efface.tokenization import Batch

EAP = dict(method="eap", metric="neg_nll")


def small_llama(seed: int = 3):
    """Two layers of two heads that share a key and a value: 46 edges."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=61, hidden_size=16, intermediate_size=20, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.4) if parameter.ndim > 1 else parameter.add_(
                    torch.randn_like(parameter), alpha=0.2
                )
    return model


def literal_slopes(model, batch: Batch, corrupted: torch.Tensor, epsilon: float) -> torch.Tensor:
    """(M(ε) − M(0)) / ε of every edge, each patched on its own by the share ε."""
    graph = residual_stream(model).graph
    none = torch.zeros(graph.n_sources, graph.n_destinations, dtype=torch.float64)
    _, baseline = literal_run(model, corrupted[0], none)
    whole = literal_neg_nll(literal_run(model, batch.input_ids[0], none)[0], batch.labels[0])
    slopes = []
    for row, column in zip(graph.edge_sources, graph.edge_destinations, strict=True):
        share = none.clone()
        share[row, column] = epsilon
        logits, _ = literal_run(model, batch.input_ids[0], share, baseline)
        slopes.append((literal_neg_nll(logits, batch.labels[0]) - whole) / epsilon)
    return torch.stack(slopes)


def test_partial_patch_of_an_edge_converges_to_its_score():
    """Halving ε about halves the distance, until EAP's score is met in the limit (Richardson: 2 s(ε/2) − s(ε))."""
    model = small_llama()
    batch, corrupted = random_batch([6])
    scores = edge_scores(model, batch, **EAP, intervention="patching", corrupted_ids=corrupted).scores[0].double()
    coarse, fine = (literal_slopes(model, batch, corrupted, epsilon) for epsilon in (2e-4, 1e-4))
    largest = scores.abs().max()
    assert (fine - scores).abs().max() < 0.6 * (coarse - scores).abs().max() + 1e-6 * largest
    torch.testing.assert_close(2 * fine - coarse, scores, rtol=0, atol=2e-5 * float(largest))


def test_score_is_the_whole_effect_where_the_rest_is_linear():
    """Edges into `logits`, behind a final norm whose ε makes it the identity; only the right token's logit is not 0."""
    model = small_llama()
    with torch.no_grad():
        model.model.norm.variance_epsilon = 1e10
        model.model.norm.weight.fill_(1e5)
        model.lm_head.weight[torch.arange(61) != 3] = 0
    ids = torch.tensor([[4, 7, 2, 3]])
    batch = Batch(ids, torch.ones_like(ids), torch.tensor([[-100, -100, -100, 3]]))
    patching = dict(intervention="patching", corrupted_ids=ids.flip(1))
    found = edge_scores(model, batch, method="eap", metric="logit_difference", **patching)
    baseline = baseline_sources(model, batch, **patching)
    graph = residual_stream(model).graph
    for row, source in enumerate(graph.source_names):
        share = torch.zeros(1, graph.n_sources, graph.n_destinations)
        share[0, row, -1] = 1
        patched = patched_metric(model, batch, share, metric="logit_difference", baseline=baseline)
        score = found.scores[:, graph.edge_index(f"{source}->logits")]
        torch.testing.assert_close(patched - found.metric_clean, score, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_the_slope_of_real_patching_in_every_family(family):
    """Along a random direction R over all edges at once: dM(εR)/dε = Σ R · score, by central difference."""
    model = lively_model(family)
    batch, corrupted = random_batch([9, 6])
    graph = residual_stream(model).graph
    found = edge_scores(model, batch, **EAP, intervention="patching", corrupted_ids=corrupted)
    baseline = baseline_sources(model, batch, intervention="patching", corrupted_ids=corrupted)
    direction = torch.randn(2, graph.n_edges, generator=torch.Generator().manual_seed(1))
    up, down = (
        patched_metric(model, batch, graph.matrix(step * direction), metric="neg_nll", baseline=baseline)
        for step in (2e-3, -2e-3)
    )
    expected = (direction * found.scores).sum(1)
    scale = (direction * found.scores).square().sum(1).sqrt().max()
    torch.testing.assert_close((up - down) / 4e-3, expected, rtol=0, atol=0.01 * float(scale))


@pytest.mark.parametrize("family", ["llama", "gpt2", "phi", "gemma"])
def test_sources_add_up_to_every_residual_stream(family):
    """With position embeddings and output biases, which belong to no node."""
    model = lively_model(family)
    batch, _ = random_batch([8])
    stream = residual_stream(model)
    run = recorded_run(model, stream, **vars(batch), metric="neg_nll", gradients=False)
    nothing = baseline_sources(model, batch, intervention="zero")
    outputs = -source_differences(stream, run.sources, nothing, batch.attention_mask)[0]
    none = torch.zeros(model.config.hidden_size)
    extra = model.transformer.wpe.weight[:8].detach() if family == "gpt2" else none
    graph, tolerance = stream.graph, dict(rtol=1e-4, atol=1e-4)
    for layer, block in enumerate(stream.blocks):
        expected = outputs[: graph.seen_by_attention(layer)].sum(0) + extra
        torch.testing.assert_close(run.kept.attention_inputs[layer][0], expected, **tolerance)
        bias = block.output.bias if block.output.bias is not None else none
        at_mlp = outputs[: graph.seen_by_mlp(layer)].sum(0) + extra + (0 if graph.parallel else bias)
        torch.testing.assert_close(run.kept.mlp_inputs[layer][0], at_mlp, **tolerance)
        extra = extra + bias
    torch.testing.assert_close(run.kept.final_input[0][0], outputs.sum(0) + extra, **tolerance)


@pytest.mark.parametrize("method", ["eap", "eap_ig_inputs", "eap_ig_activations", "clean_corrupted"])
def test_batch_of_unequal_lengths_is_one_example_at_a_time(method):
    model = lively_model()
    batch, corrupted = random_batch([11, 9, 6])
    request = dict(method=method, metric="neg_prob", intervention="patching", steps=2)
    together = edge_scores(model, batch, **request, corrupted_ids=corrupted)
    for row, length in enumerate((11, 9, 6)):
        alone = Batch(*(part[row : row + 1, :length] for part in vars(batch).values()))
        found = edge_scores(model, alone, **request, corrupted_ids=corrupted[row : row + 1, :length])
        largest = float(found.scores.abs().max())
        torch.testing.assert_close(together.scores[row], found.scores[0], rtol=0, atol=1e-5 * largest)
        torch.testing.assert_close(together.metric_clean[row], found.metric_clean[0])


def test_answer_of_one_token_is_scored():
    batch, corrupted = random_batch([5], answer=1)
    found = edge_scores(lively_model(), batch, **EAP, intervention="patching", corrupted_ids=corrupted)
    assert found.scores.isfinite().all() and found.scores.any()


def test_rms_norm_makes_zero_ablation_degenerate():
    """Scaling a reader's whole input changes nothing, so the scores into it add up to zero."""
    model = lively_model()
    graph = residual_stream(model).graph
    scores = edge_scores(model, random_batch([9])[0], **EAP, intervention="zero").scores
    assert graph.matrix(scores)[0].sum(0).abs().max() < 1e-4 * scores.abs().max()


@pytest.mark.parametrize("metric", ["logit_difference", "kl", "neg_prob"])
@pytest.mark.parametrize("method", ["eap_ig_inputs", "clean_corrupted"])
def test_mean_ablation_and_other_metrics_are_finite(metric, method):
    model = lively_model("qwen3")
    batch, _ = random_batch([9, 7])
    means = mean_sources(model, [batch])
    found = edge_scores(model, batch, method=method, metric=metric, intervention="mean", means=means, steps=3)
    assert found.scores.isfinite().all() and found.scores.any()


def test_means_leave_padding_out_and_do_not_depend_on_batches():
    model = lively_model()
    batch, _ = random_batch([9, 5])
    short = Batch(*(part[1:, :5] for part in vars(batch).values()))
    parts = mean_sources(model, [Batch(*(part[:1] for part in vars(batch).values())), short])
    whole = mean_sources(model, [batch])
    ids = torch.cat([batch.input_ids[0], batch.input_ids[1, :5]])
    torch.testing.assert_close(whole.embedding, model.get_input_embeddings()(ids).mean(0))
    for name in ("a0", "m1"):
        torch.testing.assert_close(whole.group(name), parts.group(name))
    with pytest.raises(ValueError, match="at least one example"):
        mean_sources(model, [])


def test_scores_accumulate_in_float32_under_half_precision_weights():
    model = lively_model()
    batch, corrupted = random_batch([9])
    exact, rough = (
        edge_scores(
            model.to(dtype), batch, method="eap_ig_inputs", metric="neg_prob", intervention="patching",
            corrupted_ids=corrupted,
        ).scores
        for dtype in (torch.float32, torch.bfloat16)
    )  # fmt: skip
    assert rough.dtype == torch.float32
    assert torch.corrcoef(torch.cat([exact, rough]))[0, 1] > 0.97


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_model_is_left_as_it_was(family):
    model = lively_model(family)
    model.lm_head.weight.requires_grad_(False)
    batch, corrupted = random_batch([9, 6])

    def state():
        flags = [parameter.requires_grad for parameter in model.parameters()]
        hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
        groups = [getattr(module, "num_key_value_groups", None) for module in model.modules()]
        gradients = [parameter.grad for parameter in model.parameters()]
        return flags, hooks, groups, gradients

    with torch.no_grad():
        before = model(batch.input_ids, attention_mask=batch.attention_mask).logits
    before_state = state()
    edge_scores(model, batch, **EAP, intervention="patching", corrupted_ids=corrupted)
    with pytest.raises(IndexError):
        edge_scores(model, batch, **EAP, intervention="patching", corrupted_ids=corrupted + 1000)
    assert state() == before_state
    with torch.no_grad():
        assert torch.equal(model(batch.input_ids, attention_mask=batch.attention_mask).logits, before)


def test_hooked_pass_has_the_models_own_logits():
    model = lively_model("qwen3")
    batch, _ = random_batch([9, 6])
    run = recorded_run(model, residual_stream(model), **vars(batch), metric="neg_nll", gradients=True)
    with torch.no_grad():
        own = model(batch.input_ids, attention_mask=batch.attention_mask).logits
    torch.testing.assert_close(run.logits, own[:, -run.logits.shape[1] :], rtol=1e-5, atol=1e-5)


def test_other_families_are_refused_with_what_is_missing():
    from transformers import Gemma2Config, Gemma2ForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM

    shape = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=20)
    with pytest.raises(ValueError, match=r"GPTNeoXForCausalLM: no `model\.layers`"):
        residual_stream(GPTNeoXForCausalLM(GPTNeoXConfig(**shape)))
    with pytest.raises(ValueError, match="Gemma2DecoderLayer normalises the outputs"):
        residual_stream(Gemma2ForCausalLM(Gemma2Config(**shape, head_dim=8, num_key_value_heads=1)))


def test_decoder_that_scales_its_writes_is_refused():
    """Granite names its parts as Llama does, but multiplies what blocks add."""
    from transformers import GraniteConfig, GraniteForCausalLM

    config = GraniteConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=16,
        vocab_size=61, residual_multiplier=0.3,
    )  # fmt: skip
    with pytest.raises(ValueError, match="do not add up to the residual stream"):
        edge_scores(GraniteForCausalLM(config).eval(), random_batch([6])[0], **EAP, intervention="zero")


@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight"])
def test_nan_in_the_weights_is_named(name):
    model = lively_model()
    with torch.no_grad():
        model.get_parameter(name).view(-1)[3] = float("nan")
    with pytest.raises(ValueError, match="NaN or infinite weights"):
        edge_scores(model, random_batch([9])[0], **EAP, intervention="zero")


def test_requests_that_cannot_be_met_say_why():
    model = lively_model()
    batch, corrupted = random_batch([9, 6])

    def ask(changed: Batch = batch, **request):
        return edge_scores(model, changed, **({"metric": "neg_nll", "method": "eap", "intervention": "zero"} | request))

    with pytest.raises(ValueError, match="same number of tokens"):
        ask(intervention="patching", corrupted_ids=corrupted[:, :-1])
    with pytest.raises(ValueError, match="needs corrupted_ids"):
        ask(intervention="patching")
    with pytest.raises(ValueError, match="compute them with mean_sources"):
        ask(intervention="mean")
    with pytest.raises(ValueError, match="a zero embedding is none"):
        ask(method="eap_ig_inputs")
    with pytest.raises(ValueError, match="flat at the clean run"):
        ask(metric="kl")
    with pytest.raises(ValueError, match="steps 0"):
        ask(steps=0)
    with pytest.raises(ValueError, match="padded on the left"):
        ask(replace(batch, attention_mask=batch.attention_mask.flip(1)))
    with pytest.raises(ValueError, match="example 1 of the batch has no answer"):
        labels = batch.labels.clone()
        labels[1] = -100
        ask(replace(batch, labels=labels))
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        model.train()
        ask()


def test_heads_write_through_their_own_columns_of_the_output_map():
    """The output projection of concatenated heads is the sum of what each head writes."""
    model = lively_model("gpt2")
    stream = residual_stream(model)
    z = torch.randn(5, 24, generator=torch.Generator().manual_seed(0))
    per_head = torch.einsum("thk,hkd->htd", z.unflatten(1, (4, 6)), writers(stream, 1))
    output = model.transformer.h[1].attn.c_proj
    torch.testing.assert_close(per_head.sum(0), output(z) - output.bias, rtol=1e-5, atol=1e-5)
    assert stream.graph == Graph(2, 4)
