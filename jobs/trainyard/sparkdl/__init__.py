"""Stands where Databricks' sparkdl did: `sparkdl.xgboost` is `trainyard.sparkdl.xgboost`."""
