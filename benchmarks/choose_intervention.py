"""Which intervention circuits should be extracted with: by faithfulness, and by what CUD then foretells.

`python -m benchmarks.choose_intervention` reads a finished run. For each candidate it extracts the pool's circuits,
ablates around some of them beside random circuits of the same size, and scores CUD with the run's own anchors. Rank
correlations with the rise of loss are taken on the authors of the half `choice` alone; the report gives the other half.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from statistics import fmean

import polars as pl
import torch
from tqdm import tqdm

from efface.circuits.attribution import mean_sources
from efface.circuits.extraction import AS_PUBLISHED, CircuitExtraction
from efface.circuits.residual_stream import residual_stream
from efface.difficulty.cud import ROLES, Circuits, anchor_circuit
from efface.models import load_model, load_tokenizer
from efface.tokenization import length_sorted_batches, padding_id
from stages.analyse_difficulty import correlation, halves, outcomes
from stages.circuit_shards import circuit_shards
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.measure_faithfulness import evenly_spread, measured, random_circuits
from stages.params import Params, load_params
from stages.report_page.tables import faithfulness_shares
from stages.score_cud import ANCHORS_FILE
from stages.tables.anchors import ALL_RUNS, ANCHORS
from stages.tables.examples import EXAMPLES


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--faithful", type=int, default=60, help="rows whose circuits are ablated")
    chosen, params = arguments.parse_args(), load_params()
    found = outcomes(params)
    edits = [edit for outcome, edit in found if outcome == "rise"]
    print("| circuits | circuit alone | random alone | circuit ablated | " + " | ".join(edits) + " | mean ρ |")
    print("|---" * (len(edits) + 5) + "|")
    for name, settings in candidates(params.extract_circuits).items():
        shares, cud = candidate(settings, params, rows_ablated=chosen.faithful)
        authors = dict(EXAMPLES.read(EXAMPLES_FILE).filter("pool").select("id", "author").iter_rows())
        half = {number: value for number, value in cud.items() if number in halves(authors)["choice"]}
        rhos = [correlation(half, found["rise", edit], authors, params).value for edit in edits]
        cells = [f"{share:.3f}" for share in shares] + ["–" if rho is None else f"{rho:+.2f}" for rho in rhos]
        print(f"| {name} | {' | '.join(cells)} | {fmean(rho or 0.0 for rho in rhos):+.2f} |", flush=True)


def candidates(settings: CircuitExtraction) -> dict[str, CircuitExtraction]:
    """The settings of the run with another intervention, and the published ones."""
    return {
        "patching": replace(settings, intervention="patching"),
        "mean": replace(settings, intervention="mean"),
        "zero (as published)": replace(AS_PUBLISHED, edges=settings.edges, batch_size=settings.batch_size),
    }


def candidate(
    settings: CircuitExtraction, params: Params, *, rows_ablated: int
) -> tuple[tuple[float, float, float], Mapping[int, float]]:
    """Shares of behaviour (circuit alone, random alone, circuit ablated), and CUD by example, anchors left out."""
    model, tokenizer = load_model("models/target"), load_tokenizer(TOKENIZER_FOLDER)
    graph, pad_id = residual_stream(model).graph, padding_id(tokenizer)
    rows = EXAMPLES.scan(EXAMPLES_FILE).filter(split="authors").sort("id").collect()
    encodings = encoded_rows(rows, tokenizer, params.tokenization)
    pool = [encoding for encoding, in_pool in zip(encodings, rows["pool"], strict=True) if in_pool]
    batches = length_sorted_batches(pool, batch_size=settings.batch_size, pad_id=pad_id)
    means = cache(lambda: mean_sources(model, (batch for _, batch in batches)))

    circuits: dict[int, Circuits] = {}
    for shard in tqdm(list(circuit_shards(rows, encodings, settings, pad_id=pad_id)), desc="circuits"):
        corrupted = None if shard.corrupted is None else shard.corrupted.input_ids
        own_means = means() if settings.baseline(paired=corrupted is not None) == "mean" else None
        extracted = settings.extract(model, shard.batch, corrupted_ids=corrupted, means=own_means)
        for number, circuit in zip(shard.ids, extracted, strict=True):
            scores, mask = torch.zeros(graph.n_edges), torch.zeros(graph.n_edges, dtype=torch.bool)
            scores[circuit.edges], mask[circuit.edges] = circuit.scores, circuit.in_circuit
            circuits[number] = Circuits(scores, mask)

    ablated = evenly_spread(rows.filter("pool")["id"], rows_ablated)
    own = {number: circuits[number].mask for number in ablated}
    random = random_circuits(graph, own, seed=params.seed)
    few = rows.with_columns(pool=pl.col("id").is_in(ablated.implode()))
    frames = [
        measured(model, shard, masks, name, settings, means)
        for shard in tqdm(list(circuit_shards(few, encodings, settings, pad_id=pad_id)), desc="ablations")
        for name, masks in (("own", own), ("random", random))
    ]
    together = pl.concat(frames).with_columns(baseline=pl.lit("any"))
    shares = {row["circuit"]: row for row in faithfulness_shares(together).iter_rows(named=True)}
    found = (shares["own"]["circuit_share"], shares["random"]["circuit_share"], shares["own"]["complement_share"])
    return found, _cud(circuits, params, partial(settings.select, graph))


def _cud(circuits: Mapping[int, Circuits], params: Params, select: partial) -> dict[int, float]:
    """CUD of every row that is no anchor and has a circuit."""
    voted = ANCHORS.read(ANCHORS_FILE).filter(source=ALL_RUNS)
    ids = {role: voted.filter(role=role)["id"].to_list() for role in ROLES}
    easy, hard = (
        anchor_circuit(torch.stack([circuits[number].scores for number in ids[role]]).mean(0), select) for role in ROLES
    )
    numbers = [number for number in circuits if number not in {*ids["easy"], *ids["hard"]}]
    parts = (torch.stack([getattr(circuits[number], part) for number in numbers]) for part in ("scores", "mask"))
    scored = params.score_cud.scores(Circuits(*parts), easy, hard)
    rows = zip(numbers, scored.cud.tolist(), scored.undefined.tolist(), strict=True)
    return {number: value for number, value, undefined in rows if not undefined}


if __name__ == "__main__":
    main()
