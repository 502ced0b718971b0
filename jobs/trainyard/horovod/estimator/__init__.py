"""Horovod's Spark ML estimator for PyTorch, on this project's launcher and loader."""
