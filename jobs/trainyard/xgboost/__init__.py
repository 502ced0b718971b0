"""Training with XGBoost on Spark: its collective, the workers' data, the rounds, explanations."""
