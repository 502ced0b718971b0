"""A search over hyperparameters: Optuna's study on the driver, a trial in each of Spark's slots."""
