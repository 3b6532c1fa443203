"""Gradient unlearning: one frozen dataclass per method, its defaults those of open-unlearning, its verb the loss.

Every method minimises γ · forget loss + α · retain loss (GradAscent, CE-U and FLAT: the forget loss alone), where a
step pairs each forget example with a retain example, and with another answer to its question where the method prefers
one (IdkDPO, AltPO, FLAT). Shared fields:

- learning_rate, epochs, batch_size (in pairs), gradient_accumulation, weight_decay: of AdamW, 32 pairs a step;
- warmup_epochs: the rate rises over so many epochs, then falls linearly to 0 or stays (`schedule`);
- dtype: float32, or bfloat16 autocast over float32 weights;
- retain_loss: `nll`; `kl` to the start model over all tokens; `kl_published` over all positions, padding included;
- lora: train adapters of this shape instead of the weights;
- localised: train nothing outside the layers that localisation selects;
- order: in which an epoch meets the forget examples, at random or by a difficulty that is known beforehand.
"""

from efface.unlearning.ascent import GradAscent, GradDiff, SatImp, Wga
from efface.unlearning.distillation import CeU, Undial
from efface.unlearning.divergence import Flat
from efface.unlearning.misdirection import Rmu
from efface.unlearning.preference import AltPo, IdkDpo, Npo, SimNpo
from efface.unlearning.primal_dual import Pdu

Unlearning = GradAscent | GradDiff | Npo | SimNpo | IdkDpo | AltPo | Flat | Pdu | Undial | Wga | SatImp | CeU | Rmu
