"""How hard each example is to unlearn, known before unlearning."""
