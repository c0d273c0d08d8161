"""Posterior of the calcium experiment and its cell model."""
