"""Posteriors that only the experiments need."""
