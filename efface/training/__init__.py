"""One fine-tuning loop and the losses it is given."""
