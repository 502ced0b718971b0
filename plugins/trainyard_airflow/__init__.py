"""Airflow's side of Trainyard: operators, the promotion gate and what DAGs are written with."""
