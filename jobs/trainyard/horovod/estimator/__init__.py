"""Horovod's Spark ML estimator for PyTorch: its parameters, on this project's launcher and loader."""
