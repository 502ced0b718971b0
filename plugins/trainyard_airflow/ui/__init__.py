"""Pages of Airflow's UI: a run's training, the models, a task's progress."""
