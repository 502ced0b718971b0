"""What `spark-submit` runs, and the contract that Airflow shares with it."""

__version__ = "0.1.0"
