"""Training with Horovod on Spark: launcher, loader, loop, checkpoints."""
