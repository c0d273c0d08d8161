"""Discrepancies of draws that are in memory: KSD to the target (`ksd`) and MMD to a stream (`mmd`)."""
