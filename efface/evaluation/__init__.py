"""What a model still knows, measured per example and in aggregate."""
