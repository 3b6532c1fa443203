"""What we know about making language models forget: tensors in, tensors out."""
