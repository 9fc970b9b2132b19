"""Robot policies: weights with their pre- and post-processing, behind one interface.

Start reading at :mod:`takt.policies.interface` (the three roles), then
:mod:`takt.policies.echo`, the smallest policy. :func:`takt.policies.catalog.open_policy` finds a
policy by name and imports its engine only when its network is asked for.
"""
