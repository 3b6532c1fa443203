"""Weights on a coarser grid, and whether that brings forgotten knowledge back."""
