"""Pictures of what was kept and how the run went."""
