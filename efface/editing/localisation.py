"""Layer localisation: the layers where learning the forget set changed the weights at least as much as on average."""

from collections.abc import Mapping

from efface.task_matrices.factors import layer_shares

ROUNDING = 1e-9


def localised_layers(norms: Mapping[str, float]) -> tuple[int, ...]:
    """The layers l with E_l ≥ 1/|L|, arXiv:2608.01422, from ‖T_f‖_F by module: at least one, and all where all tie.

    Raises: ValueError where every norm is 0: the forget set would then be nowhere.
    """
    if not any(norms.values()):
        raise ValueError(
            f"the forget set's task matrices of {len(norms)} modules are all zero, expected a weight change; "
            "train them longer (build_task_matrices: epochs, learning_rate)"
        )
    shares = layer_shares(dict(norms))
    return tuple(layer for layer, share in sorted(shares.items()) if share >= (1 - ROUNDING) / len(shares))
