"""pi0: a PaliGemma prefix and a flow-matching action expert; the state enters at the expert.

:mod:`takt.policies.pi0.sizes` reads what a checkpoint is, :mod:`takt.policies.pi0.network` runs it.
"""
