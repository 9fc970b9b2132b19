"""SmolVLA: a SmolVLM prefix that reads the state, and an expert that looks at its cache.

:mod:`takt.policies.smolvla.sizes` reads what a checkpoint is,
:mod:`takt.policies.smolvla.network` runs it.
"""
