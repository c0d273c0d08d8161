"""Networks, data sets and training for the experiments with Bayesian neural networks.

The subspace of weights and its posterior are in `steinstream.integrations.torch`.
"""
