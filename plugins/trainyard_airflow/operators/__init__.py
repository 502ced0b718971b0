"""The operators that Trainyard's DAGs are made of."""
