"""What is looked at before a pipeline starts; `examine` does it all, without a Spark session."""
