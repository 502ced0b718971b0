"""Triggers: what waits in Airflow's triggerer, so that a waiting task holds no worker's slot."""
