"""Direct logit effects: what every layer's MLP alone says for the right next token, in every trained row."""

import pyarrow as pa

from stages.tables.table import Table

DIRECT_EFFECTS = Table(
    name="direct_effects",
    version=1,
    columns={
        "id": (pa.int64(), "example"),
        "split": (pa.string(), "authors | authors_utility | real_authors | world_facts, as in table `grams`"),
        "layer": (pa.int32(), "block, from 0"),
        "position": (pa.int32(), "0-based position in prompt and answer; it predicts the next one"),
        "gold_token": (pa.int32(), "token at the next position"),
        "effect": (pa.float32(), "<W_U[gold_token], output of the down-projection>, logits, without the final norm"),
    },
)
