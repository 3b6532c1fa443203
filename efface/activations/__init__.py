"""What a model computes inside, captured while it reads."""
