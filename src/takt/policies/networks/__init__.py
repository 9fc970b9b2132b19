"""Parts of flow-policy networks in torch, and how they are loaded and served.

- :mod:`takt.policies.networks.vision`, :mod:`~takt.policies.networks.transformer`: the parts;
- :mod:`takt.policies.networks.flow`: time embedding, guidance, Euler integration;
- :mod:`takt.policies.networks.loading`: weights into parameters, all or nothing;
- :mod:`takt.policies.networks.serving`: the stages as a worker calls them.

Only this package and the ``network`` modules of the families import torch.
"""
