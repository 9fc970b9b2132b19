"""The `mini` policy: a small two-stage flow-matching network that runs on two CPU cores.

Files: ``sizes`` (every tensor's name and shape), ``structure`` (the network, written once),
``reference`` (in NumPy), ``graphs`` (in OpenVINO), ``network`` (both stages, batches, cache),
``checkpoint`` (card and weights on disk), ``words`` (the tokenizer), ``rows`` (before and after the
network), ``replay`` (recorded observations). Only ``graphs`` and ``network`` import OpenVINO.
"""
