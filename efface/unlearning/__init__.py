"""Gradient-based unlearning baselines."""
